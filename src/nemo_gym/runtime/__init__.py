"""Who hosts which server where: cells, processes, the head server."""
