"""Deploy, measure and judge speculative decoding on AWS Trainium2 with vLLM."""
