// SPDX-License-Identifier: Apache-2.0

package dashboard_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/server/servertest"
)

var goSamples = flag.Bool("gosamples", false, "write reference/go.json anew")

// goSample returns a call of an operation's method.
func goSample(id string, path []string) string {
	name := strings.ToUpper(id[:1]) + id[1:]
	method, ok := reflect.TypeFor[*client.Client]().MethodByName(name)
	if !ok {
		return ""
	}
	f := method.Type
	args := []string{"ctx"}
	texts := slices.Concat(path, arguments[id])
	for i := 2; i < f.NumIn(); i++ {
		in := f.In(i)
		if f.IsVariadic() && i == f.NumIn()-1 {
			in = in.Elem()
		}
		args = append(args, goArgument(in, &texts))
	}
	call := "c." + name + "(" + strings.Join(args, ", ") + ")"
	for _, walk := range []string{strings.TrimPrefix(name, "List"), strings.TrimPrefix(name, "Get")} {
		all, ok := reflect.TypeFor[*client.Client]().MethodByName(walk)
		if ok && walk != name && all.Type.NumOut() == 1 && all.Type.Out(0).Kind() == reflect.Func && all.Type.NumIn() == f.NumIn()-1 {
			return "for item, err := range c." + walk + "(" + strings.Join(args[:len(args)-1], ", ") + ") { // all pages\n\tif err != nil {\n\t\treturn err\n\t}\n\tfmt.Printf(\"%+v\\n\", item)\n}"
		}
	}
	switch {
	case f.NumOut() == 1 && f.Out(0).Kind() == reflect.Func:
		return "for item, err := range " + call + " {\n\tif err != nil {\n\t\treturn err\n\t}\n\tfmt.Printf(\"%+v\\n\", item)\n}"
	case f.NumOut() == 1:
		return "if err := " + call + "; err != nil {\n\treturn err\n}"
	}
	return "answer, err := " + call + "\nif err != nil {\n\treturn err\n}\nfmt.Printf(\"%+v\\n\", answer)"
}

// goArgument returns the literal of a parameter; texts has the path's values.
func goArgument(in reflect.Type, texts *[]string) string {
	switch in {
	case reflect.TypeFor[time.Time]():
		return "time.Now().Add(time.Hour)"
	case reflect.TypeFor[io.Writer]():
		return "os.Stdout"
	case reflect.TypeFor[io.Reader]():
		return "os.Stdin"
	}
	switch in.Kind() {
	case reflect.String:
		text := "text"
		if len(*texts) > 0 {
			text, *texts = (*texts)[0], (*texts)[1:]
		}
		if in.PkgPath() != "" {
			return in.String() + `("` + text + `")`
		}
		return `"` + text + `"`
	case reflect.Int, reflect.Int64, reflect.Uint32:
		return "1"
	case reflect.Bool:
		return "true"
	case reflect.Pointer:
		if in.Elem().Kind() == reflect.Struct {
			return "&" + goStruct(in.Elem())
		}
	case reflect.Struct:
		return goStruct(in)
	case reflect.Slice:
		return in.String() + "{" + goArgument(in.Elem(), texts) + "}"
	case reflect.Map:
		return "map[string]any{\"order\": 42}"
	case reflect.Func:
		return "nil"
	}
	return "nil"
}

const sampleID = "0192f0c1-7a6e-7c3a-b1f2-5a0d9e6c4b21"

// filled are struct literals for the examples.
var filled = map[string]string{
	"client.NewMailbox":       `DomainID: "` + sampleID + `", LocalPart: "ann", DisplayName: "Ann Lee"`,
	"client.NewMigration":     `MailboxID: "` + sampleID + `", Source: client.NewMigrationSource{Host: "imap.old.example", Username: "ann@example.com", Password: os.Getenv("OLD_PASSWORD")}`,
	"client.NewDKIMKey":       `Selector: "mine", PrivateKey: "-----BEGIN PRIVATE KEY-----…"`,
	"client.NewWebhook":       `URL: "https://example.com/hook", Events: []string{"all"}`,
	"client.QueueRequest":     `QueueFilter: client.QueueFilter{Destination: "example.org"}`,
	"client.Batch":            "Messages: []client.BatchMessage{\n\tclient.Send{FromEmail: \"shop@example.com\", To: []string{\"bob@example.org\"}, Subject: \"One\", Text: \"1\"},\n\tclient.TemplateSend{FromEmail: \"shop@example.com\", To: []string{\"carol@example.org\"}, TemplateID: \"order-confirmation\", Variables: map[string]any{\"order\": 42}},\n}",
	"client.Send":             `FromEmail: "shop@example.com", To: []string{"bob@example.org"}, Subject: "Your order", Text: "Thank you!"`,
	"client.TemplateSend":     `FromEmail: "shop@example.com", To: []string{"bob@example.org"}, TemplateID: "` + sampleID + `", Variables: map[string]any{"order": 42}`,
	"client.SimulatedMessage": `From: "Bob <bob@example.org>", To: []string{"you@example.com"}, Subject: "Re: Your order", Text: "Thank you!"`,
	"client.NewTemplate":      `Name: "Order confirmation", TemplateContent: client.TemplateContent{Subject: "Your order {{order}}", HTML: "<p>Hi {{user.name}}</p>"}`,
	"client.NewAPIKey":        `Name: "Shop", Scopes: []string{"outbound.send"}`,
	"client.MailboxChange":    `QuotaMB: new(2048)`,
	"client.DomainChange":     `DKIMRotationDays: new(90)`,
	"client.WebhookChange":    `URL: new("https://example.com/hook")`,
	"client.TemplateChange":   `Subject: new("Your order {{order}} is paid")`,
	"client.LimitSet":         `SendsPerHour: new(int64(1000))`,
	"client.NewVacation":      `Enabled: true, Text: "I am back on Monday."`,
}

// arguments are further string arguments of the examples, by operation; those of the path come
// first.
var arguments = map[string][]string{
	"addSuppression": {"bob@example.org", "manual"}, "addSuppressions": {"bob@example.org", "manual"}, "importSuppressions": {"bounce"}, "createAccount": {"shop@example.com", "Shop"},
	"createAlias": {"info@example.com", "ann@example.com"}, "updateAlias": {"ann@example.com"}, "createDomain": {"example.com"}, "duplicateTemplate": {"Order confirmation, in French"},
	"listAliases": {sampleID}, "listQueueDestinations": {"example.org"}, "rotateDKIM": {"rsa"}, "setMailboxPassword": {""}, "streamEvents": {""}, "testWebhook": {"delivery_status"},
	"updateAccount": {"suspended"}, "createAppPassword": {"Phone", "imap"},
}

func goStruct(in reflect.Type) string { return in.String() + "{" + filled[in.String()] + "}" }

// The Go examples match the Go client, and compile with it.
func TestGoSamples(t *testing.T) {
	s := servertest.Start(t)
	var doc struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	s.APIWithKey("", "GET", "/openapi.json", nil).Decode(t, &doc)
	samples := map[string]string{}
	for path, methods := range doc.Paths {
		var inPath []string
		for _, part := range strings.Split(path, "/") {
			if strings.HasPrefix(part, "{") {
				inPath = append(inPath, sampleID)
			}
		}
		for _, op := range methods {
			samples[op.OperationID] = goSample(op.OperationID, inPath)
		}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(samples); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("reference", "go.json")
	if *goSamples {
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(kept, out.Bytes()) {
		t.Error("the examples have changed: run this test with -args -gosamples, and build anew")
	}
	program := "package main\n\nimport (\n\t\"context\"\n\t\"fmt\"\n\t\"io\"\n\t\"os\"\n\t\"time\"\n\n\t\"github.com/mailstead/mailstead/client\"\n)\n\nvar (\n\t_ = io.Discard\n\t_ = os.Stdout\n\t_ = time.Now\n\t_ = fmt.Sprint\n)\n\nfunc main() {}\n"
	for _, id := range slices.Sorted(maps.Keys(samples)) {
		if samples[id] == "" {
			t.Errorf("%s has no method", id)
		}
		program += fmt.Sprintf("\nfunc %s(ctx context.Context, c *client.Client) error {\n%s\nreturn nil\n}\n", id, samples[id])
	}
	main := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(main, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.CommandContext(t.Context(), "go", "vet", main).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
