"""What is under test: supported runtimes, the choice of arms, engine arguments, model and tokenizer identity."""
