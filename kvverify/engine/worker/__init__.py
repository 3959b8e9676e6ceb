"""The child process of an arm: the only package of kvverify that imports vllm."""
