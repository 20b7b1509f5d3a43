"""Work queues: items that are kept until a worker has done them."""
