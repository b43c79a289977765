"""What every Mycelia service and custom actor needs: codec, signatures, config, clients, server."""
