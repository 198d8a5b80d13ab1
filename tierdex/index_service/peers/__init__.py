"""Other nodes, asked over HTTP for what they have not published: the questions, both ends, the rules."""
