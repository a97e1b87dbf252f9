"""State: the box, the transaction, and the object graph."""
