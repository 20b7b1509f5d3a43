"""All links among the nodes and from clients to nodes, each direction for itself."""
