"""Many slabs as one: their fields, their rows one behind the other, and files that list them."""
