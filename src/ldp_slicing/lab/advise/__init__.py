"""Advice on a setting: utility and risk of many settings, measured on an owner's own images, on the owner's machine."""
