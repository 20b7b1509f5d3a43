"""What a page promises, left running: hours and days of a worker, a crontab and a beat."""
