// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mailstead/mailstead/internal/server/servertest"
)

// freeJSON lists the properties of the API that take or return any JSON.
var freeJSON = []string{
	"AcceptedMessage.metadata", "BounceEvent.metadata", "ComplaintEvent.metadata", "DeliveryStatusEvent.metadata",
	"Message.metadata", "MessageDetail.metadata", "RenderTemplateRequest.variables", "SendRequest.metadata",
	"SendTemplateRequest.metadata", "SendTemplateRequest.variables", "TemplateVariable.fallback",
	"TemplateVariableRequest.fallback", "UnsubscribeEvent.metadata",
}

// The types that two generators make of the description take right calls and refuse wrong ones, and
// leave nothing untyped but free JSON.
func TestTypeScript(t *testing.T) {
	s := servertest.Start(t)
	packages := npmPackages(t, "testdata/typescript")
	p := newProgram(t)
	p.write("openapi.json", string(s.APIWithKey("", "GET", "/openapi.json", nil).Body))
	for _, name := range []string{"package.json", "tsconfig.json", "right.ts", "wrong.ts"} {
		text, err := os.ReadFile(filepath.Join("testdata", "typescript", name))
		if err != nil {
			t.Fatal(err)
		}
		p.write(name, string(text))
	}
	if err := os.Symlink(packages, filepath.Join(p.home, "node_modules")); err != nil {
		t.Fatal(err)
	}
	p.must("", "node", "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "openapi.d.ts")
	p.must("", "node", "node_modules/@hey-api/openapi-ts/bin/run.js", "-i", "openapi.json", "-o", "hey", "--no-log-file")
	p.must("", "node", "node_modules/typescript/bin/tsc", "-p", ".")

	for _, generated := range []struct {
		file           string
		types, members *regexp.Regexp
	}{
		{"openapi.d.ts", regexp.MustCompile(`^        (\w+): `), regexp.MustCompile(`^            (\w+)\??: `)},
		{"hey/types.gen.ts", regexp.MustCompile(`^export type (\w+) `), regexp.MustCompile(`^    (\w+)\??: `)},
	} {
		text, err := os.ReadFile(filepath.Join(p.home, generated.file))
		if err != nil {
			t.Fatal(err)
		}
		found := untyped(string(text), generated.types, generated.members)
		// An object that is always empty: only one of the generators can say so.
		delete(found, "EmptyMetadata.")
		if names := slices.Sorted(maps.Keys(found)); !slices.Equal(names, freeJSON) {
			t.Errorf("%s: untyped are\n%q, want\n%q", generated.file, names, freeJSON)
		}
	}
}

var untypedWord = regexp.MustCompile(`\b(unknown|any)\b`)

// untyped returns the members of generated types that contain unknown or any, as Type.member.
func untyped(text string, types, members *regexp.Regexp) map[string]bool {
	found := map[string]bool{}
	var name, member string
	for line := range strings.Lines(text) {
		if m := types.FindStringSubmatch(line); m != nil {
			name, member = m[1], ""
		} else if m := members.FindStringSubmatch(line); m != nil {
			member = m[1]
		}
		code := strings.TrimSpace(line)
		// Comments, and further headers of responses, say nothing about the schemas.
		if strings.HasPrefix(code, "*") || strings.HasPrefix(code, "/*") || code == "[name: string]: unknown;" {
			continue
		}
		if untypedWord.MatchString(code) {
			found[name+"."+member] = true
		}
	}
	return found
}
