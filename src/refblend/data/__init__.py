"""Problems, prompt files, tokenizer and prompt order."""
