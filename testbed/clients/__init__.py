"""What runs in a client process, and its workloads."""
