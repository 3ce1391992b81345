"""A package of somebody else that brings to Strobe, for the small flow policy: its record and a treatment."""
