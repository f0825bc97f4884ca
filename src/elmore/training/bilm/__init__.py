"""Language models: pretrain and fine-tune a biLM."""
