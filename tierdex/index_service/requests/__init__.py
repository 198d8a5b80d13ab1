"""What callers give: checked requests, put columns, cursors."""
