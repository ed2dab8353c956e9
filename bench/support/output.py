"""Where a bench's results go."""
import json


def write(page, results, options):
    """`page`: Markdown, to options.output; `results` to options.json_path as JSON. Either may be unset."""
    if options.output:
        with open(options.output, "w", encoding="utf-8") as text:
            text.write(page)
    if options.json_path:
        with open(options.json_path, "w", encoding="utf-8") as text:
            json.dump(results, text, indent=1)
