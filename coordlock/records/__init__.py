"""What the service keeps beside the queues: records that many clients change, and transactions."""
