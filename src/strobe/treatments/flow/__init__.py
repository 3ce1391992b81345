"""Treatments of flow policies: a prefix pass that fills a cache, denoising steps that read it."""
