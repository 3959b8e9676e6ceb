"""How answers come: one engine process group an arm, driven over a pipe.

``session`` is the parent's side, ``worker`` runs in the child (the only package that imports vllm),
``wire`` holds the messages between them.
"""
