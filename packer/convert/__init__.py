"""What a column becomes, and how: Arrow columns -> the arrays of their fields."""
