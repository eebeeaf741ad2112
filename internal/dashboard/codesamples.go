// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// exampleRequest is the request that code samples make.
type exampleRequest struct {
	method, url     string
	body            any    // JSON body; nil for none
	requestMedia    string // media type of an uploaded file
	responseMedia   string // media type of a file in the response
	hasJSONResponse bool   // whether the response is JSON
}

func (r exampleRequest) isStream() bool { return r.responseMedia == "text/event-stream" }

func (r exampleRequest) curl() string {
	parts := []string{"curl"}
	if r.method != "GET" {
		parts[0] += " -X " + r.method
	}
	if r.isStream() {
		parts[0] += " -N"
	}
	parts[0] += " " + r.url
	parts = append(parts, `-H "Authorization: Bearer $MAILSTEAD_API_KEY"`)
	if r.body != nil {
		parts = append(parts, `-H "Content-Type: application/json"`, "-d '"+strings.ReplaceAll(indentJSON(r.body, ""), "'", `'\''`)+"'")
	}
	if r.requestMedia != "" {
		parts = append(parts, `-H "Content-Type: `+r.requestMedia+`"`, "--data-binary @file")
	}
	if r.responseMedia != "" && !r.isStream() {
		parts = append(parts, "-o file")
	}
	return strings.Join(parts, " \\\n  ")
}

func (r exampleRequest) typescript() string {
	var out strings.Builder
	if r.requestMedia != "" {
		out.WriteString("import { readFile } from \"node:fs/promises\";\n\n")
	}
	fmt.Fprintf(&out, "const answer = await fetch(%q, {\n", r.url)
	if r.method != "GET" {
		fmt.Fprintf(&out, "  method: %q,\n", r.method)
	}
	out.WriteString("  headers: {\n    Authorization: `Bearer ${process.env.MAILSTEAD_API_KEY}`,\n")
	if kind := r.contentType(); kind != "" {
		fmt.Fprintf(&out, "    \"Content-Type\": %q,\n", kind)
	}
	out.WriteString("  },\n")
	if r.body != nil {
		out.WriteString("  body: JSON.stringify(" + indentJSON(r.body, "  ") + "),\n")
	}
	if r.requestMedia != "" {
		out.WriteString("  body: await readFile(\"file\"),\n")
	}
	out.WriteString("});\nif (!answer.ok) throw new Error((await answer.json()).detail);\n")
	switch {
	case r.isStream():
		out.WriteString("for await (const piece of answer.body!.pipeThrough(new TextDecoderStream())) console.log(piece);")
	case r.responseMedia != "":
		out.WriteString("const file = await answer.arrayBuffer();")
	case r.hasJSONResponse:
		out.WriteString("console.log(await answer.json());")
	}
	return strings.TrimSpace(out.String())
}

func (r exampleRequest) contentType() string {
	if r.body != nil {
		return "application/json"
	}
	return r.requestMedia
}

func (r exampleRequest) python() string {
	var out strings.Builder
	fmt.Fprintf(&out, "import os\nimport requests\n\nanswer = requests.%s(\n    %q,\n    headers={\"Authorization\": \"Bearer \" + os.environ[\"MAILSTEAD_API_KEY\"]", strings.ToLower(r.method), r.url)
	if r.requestMedia != "" {
		fmt.Fprintf(&out, ", \"Content-Type\": %q", r.requestMedia)
	}
	out.WriteString("},\n")
	if r.body != nil {
		out.WriteString("    json=" + pythonLiteral(r.body, "    ") + ",\n")
	}
	if r.requestMedia != "" {
		out.WriteString("    data=open(\"file\", \"rb\"),\n")
	}
	if r.isStream() {
		out.WriteString("    stream=True,\n")
	}
	out.WriteString(")\nanswer.raise_for_status()\n")
	switch {
	case r.isStream():
		out.WriteString("for line in answer.iter_lines(decode_unicode=True):\n    print(line)")
	case r.responseMedia != "":
		out.WriteString("open(\"file\", \"wb\").write(answer.content)")
	case r.hasJSONResponse:
		out.WriteString("print(answer.json())")
	}
	return strings.TrimSpace(out.String())
}

// pythonLiteral formats a JSON value as a Python literal.
func pythonLiteral(value any, prefix string) string {
	inner := prefix + "    "
	switch x := value.(type) {
	case nil:
		return "None"
	case bool:
		if x {
			return "True"
		}
		return "False"
	case map[string]any:
		if len(x) == 0 {
			return "{}"
		}
		out := "{\n"
		for _, key := range slices.Sorted(maps.Keys(x)) {
			out += inner + pythonLiteral(key, "") + ": " + pythonLiteral(x[key], inner) + ",\n"
		}
		return out + prefix + "}"
	case []any:
		var parts []string
		for _, v := range x {
			parts = append(parts, pythonLiteral(v, prefix))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	text, err := json.Marshal(value)
	if err != nil {
		return "None"
	}
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(text))
}

// goProgram wraps a call of the Go client in a program.
func goProgram(base, call string) string {
	return "c, err := client.New(" + fmt.Sprintf("%q", base) + ", os.Getenv(\"MAILSTEAD_API_KEY\"))\nif err != nil {\n\treturn err\n}\n" + call
}
