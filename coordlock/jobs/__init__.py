"""Jobs: work that is done once for each time it is scheduled, however many processes start it."""
