"""Reports as self-contained HTML pages: templates of jinja2 with autoescape, one script, one style sheet."""
