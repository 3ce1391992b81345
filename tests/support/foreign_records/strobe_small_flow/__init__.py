"""What a package of somebody else brings to Strobe for the small flow policy: its record and a treatment."""
