"""Claims, contenders, names and the admission rule: queues as values, without any I/O."""
