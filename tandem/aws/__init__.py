"""What AWS answers: its faults, told by botocore."""
