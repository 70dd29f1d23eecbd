"""What went over a model server's boundary, kept durably."""
