"""Multiple-choice questions, judged by the option that an answer names."""
