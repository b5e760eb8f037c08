"""Stand-ins for the runtimes' programs, `inference_demo` and `vllm serve`, where no accelerator is.

They check what they are told, read the models they are given and leave what the real programs leave, in the same
places and forms; what is in it is tiny and means nothing. The first line of their output says what they are.
"""
