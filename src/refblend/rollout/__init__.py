"""Text generation behind one interface, with two engines: ``vllm`` and ``hf``."""
