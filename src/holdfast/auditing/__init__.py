"""Whether answers hold: audits against retrained models, certificates, and what makes them fair."""
