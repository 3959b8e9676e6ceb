"""What is asked: suites, probes, prompts of an exact number of tokens, and the manifest that identifies them.

Pure but for ``tokenizer.py``, which reads a tokenizer folder with transformers, imported when it is called.
"""
