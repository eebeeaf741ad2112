// SPDX-License-Identifier: Apache-2.0

package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/cascadia"
	"golang.org/x/net/html"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/needtest"
)

func values(t testing.TB, text string) map[string]any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestLanguage(t *testing.T) {
	const given = `{"name":"Ann <ann@x> & \"co\" 'x' = ` + "`" + `y","n":1000000,"big":12345678901234567890,"f":1.50,"yes":true,"no":false,"zero":0,"empty":"","none":null,
		"list":["a","b"],"void":[],"user":{"first":"A","last":"B","tags":["x"]},"orders":[{"id":1,"items":[{"n":"p"},{"n":"q"}]},{"id":2,"items":[]}]}`
	for source, want := range map[string]string{
		"plain { text } }}":                "plain { text } }}",
		`\{{name}}`:                        "{{name}}",
		"{{ n }} {{big}} {{f}} {{yes}}":    "1000000 12345678901234567890 1.50 true",
		"{{name}}":                         "Ann &lt;ann@x&gt; &amp; &quot;co&quot; &#39;x&#39; &#61; &#96;y",
		"{{{name}}}":                       "Ann <ann@x> & \"co\" 'x' = `y",
		"{{none}}{{missing}}{{user.none}}": "",
		"{{user.first}}{{list.1}}{{user.tags.0}}{{list.2}}": "Abx",
		"{{! a comment }}x{{!-- a }} b --}}y":               "xy",
		"{{#if yes}}1{{else}}2{{/if}}{{#if no}}3{{else}}4{{/if}}{{#if zero}}5{{/if}}{{#if empty}}6{{/if}}{{#if none}}7{{/if}}{{#if void}}8{{/if}}{{#if user}}9{{/if}}": "149",
		"{{#unless no}}a{{/unless}}{{#unless yes}}b{{else}}c{{/unless}}":                                                                                               "ac",
		"{{#each list}}{{@index}}{{this}}{{#if @last}}.{{else}},{{/if}}{{/each}}":                                                                                      "0a,1b.",
		"{{#each void}}x{{else}}nothing{{/each}}{{#each missing}}x{{else}}none{{/each}}":                                                                               "nothingnone",
		"{{#each orders}}{{id}}:{{#each items}}{{n}}{{../id}}{{../../n}} {{/each}};{{/each}}":                                                                          "1:p11000000 q11000000 ;2:;",
		"{{#each orders}}{{this.id}}{{user.first}}{{/each}}":                                                                                                           "1A2A",
		"{{#each user}}{{@key}}={{#if @first}}!{{/if}} {{/each}}":                                                                                                      "first=! last= tags= ",
		"{{@index}}{{../../name}}": "",
		"é{{user.last}}€":          "éB€",
	} {
		p, err := parse(source)
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		got, err := p.render(values(t, given), true, &variableUsage{used: map[string]bool{}, missing: map[string]bool{}, nonText: map[string]bool{}})
		if err != nil || got != want {
			t.Errorf("%s\n gives %q, %v\n  want %q", source, got, err, want)
		}
	}
}

func TestSyntaxErrors(t *testing.T) {
	for source, want := range map[string]string{
		"a\nbé{{x":                              "Line 2, column 3: a tag begins here and does not end; add }}",
		"{{{x}}":                                "Line 1, column 1: a tag begins here and does not end; add }}}",
		"{{!-- x }}":                            "Line 1, column 1: a tag begins here and does not end; add --}}",
		"x\n\n  {{#if a}}b":                     "Line 3, column 3: {{#if}} is never closed; add {{/if}}",
		"{{#if a}}{{#each b}}{{/if}}":           "Line 1, column 21: {{/each}} must come first",
		"{{/if}}":                               "Line 1, column 1: nothing is open that could be closed here",
		"{{else}}":                              "Line 1, column 1: {{else}} stands once within a block",
		"{{#if a}}{{else}}{{else}}":             "Line 1, column 18: {{else}} stands once within a block",
		"{{#with a}}":                           "Line 1, column 1: there is no such block; the blocks are #if, #unless and #each",
		"{{> header}}":                          "Line 1, column 1: partials are not supported",
		"{{}}":                                  "Line 1, column 1: the name of a variable is missing",
		"{{upper name}}":                        "Line 1, column 1: this is not the name of a variable: letters, digits, _ and -, with dots between; helpers and arguments are not supported",
		"{{a..b}}":                              "Line 1, column 1: this is not",
		"{{@root.a}}":                           "Line 1, column 1: this is not",
		"{{" + strings.Repeat("a", 201):         "Line 1, column 1: a tag begins",
		"\xff":                                  "Line 1, column 1: the text is not UTF-8",
		strings.Repeat("{{#if a}}", 25):         "Line 1, column 181: blocks are nested more than 20 deep",
		"{{" + strings.Repeat("a.", 12) + "a}}": "Line 1, column 1: a variable's name may have 10 parts",
	} {
		_, err := parse(source)
		var at *syntaxError
		if !errors.As(err, &at) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", source, err, want)
		}
	}
}

func TestRender(t *testing.T) {
	c, err := Compile(Content{
		Subject: "Order {{order}} for {{user.name}}",
		HTML:    "<p>Hi {{user.name}}</p><p>{{note}} {{gone}}</p>",
		Variables: []Variable{
			{Key: "order", Type: TypeNumber, Required: true},
			{Key: "user.name", Type: TypeString, Fallback: "you"},
			{Key: "note"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	given := values(t, `{"order":7,"user":{"id":1},"extra":1,"more":2}`)
	out, err := c.Render(given)
	if err != nil || out.Subject != "Order 7 for you" || out.HTML != "<p>Hi you</p><p> </p>" || out.Text != "Hi you" ||
		!slices.Equal(out.Missing, []string{"gone", "note"}) || !slices.Equal(out.Unused, []string{"extra", "more"}) {
		t.Errorf("%+v, %v", out, err)
	}
	if _, changed := given["user"].(map[string]any)["name"]; changed {
		t.Error("the caller's values were changed")
	}

	// A subject stays one line for any value of a variable.
	out, err = c.Render(values(t, `{"order":7,"user":{"name":"x\r\nBcc: victim@example.com\u2028y\u0000"}}`))
	if err != nil || out.Subject != "Order 7 for x  Bcc: victim@example.com y" {
		t.Errorf("%q, %v", out.Subject, err)
	}

	_, err = c.Render(values(t, `{"user":{"name":["no"]},"note":{}}`))
	told(t, err, "variables.order required", "variables.user.name wrong_type")
	_, err = c.Render(values(t, `{"order":1,"note":{}}`))
	told(t, err, "variables.note not_text")
	if out, err := c.Preview(nil); err != nil || !slices.Equal(out.Missing, []string{"gone", "note", "order"}) {
		t.Errorf("%+v, %v", out, err)
	}
}

// told checks the fields of a fault.
func told(t *testing.T, err error, want ...string) {
	t.Helper()
	var got []string
	if f, ok := errors.AsType[*fault.Error](err); ok {
		for _, field := range f.Fields {
			got = append(got, field.Path+" "+field.Code)
			if field.Message == "" {
				t.Errorf("%s has no message", field.Path)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("told %q, want %q (%v)", got, want, err)
	}
}

func TestCompile(t *testing.T) {
	_, err := Compile(Content{})
	told(t, err, "subject required", "html text_or_html_required")
	_, err = Compile(Content{
		Subject: "{{", HTML: "{{#if}}", Text: strings.Repeat("x", MaxSource+1),
		Variables: []Variable{{Key: "a b"}, {Key: "a"}, {Key: "a"}, {Key: "@index"}, {Key: "../x"}, {Key: "this"},
			{Key: "b", Type: "date"}, {Key: "c", Type: TypeNumber, Fallback: "x"}, {Key: "d", Required: true, Fallback: "x"}},
	})
	told(t, err, "subject invalid_template", "html invalid_template", "text too_long", "variables[0].key invalid_key", "variables[2].key duplicate_key",
		"variables[3].key invalid_key", "variables[4].key invalid_key", "variables[5].key invalid_key",
		"variables[6].type unknown_type", "variables[7].fallback wrong_type", "variables[8].fallback conflicting_fallback")
	_, err = Compile(Content{Subject: "x", Text: "x", Variables: make([]Variable, MaxVariables+1)})
	told(t, err, "variables too_many_variables")
}

// A hostile template or variable that could run long or grow large ends with a fault, in bounded
// time.
func TestBounds(t *testing.T) {
	nested := strings.Repeat("{{#each list}}", 12) + "x" + strings.Repeat("{{/each}}", 12)
	list := `{"list":[` + strings.TrimSuffix(strings.Repeat("1,", 1000), ",") + `],"long":"` + strings.Repeat("x", 100_000) + `"}`
	for what, c := range map[string]struct {
		content Content
		want    string
	}{
		"nested loops":        {Content{Subject: "x", HTML: nested}, "html too_much_work"},
		"nested empty loops":  {Content{Subject: "x", HTML: strings.ReplaceAll(nested, "x", "")}, "html too_much_work"},
		"long output":         {Content{Subject: "x", HTML: "{{#each list}}{{long}}{{/each}}"}, "html too_long"},
		"long output of text": {Content{Subject: "x", Text: "{{#each list}}{{long}}{{/each}}"}, "text too_long"},
		"deep lookups": {Content{Subject: "x", HTML: "{{#each list}}" + strings.Repeat("{{#if this}}", 15) + strings.Repeat("{{a.b.c.d.e.f.g.h.i.j}}", 5000) +
			strings.Repeat("{{/if}}", 15) + "{{/each}}"}, "html too_much_work"},
	} {
		c2, err := Compile(c.content)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		_, err = c2.Render(values(t, list))
		told(t, err, c.want)
	}
}

func TestInlineCSS(t *testing.T) {
	render := func(source string) string {
		t.Helper()
		c, err := Compile(Content{Subject: "x", HTML: source, InlineCSS: true})
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.Render(nil)
		if err != nil {
			t.Fatal(err)
		}
		return out.HTML
	}
	got := render(`<html><head><style>
		p, .note { color: red; margin: 0 }
		@media (max-width: 600px) { p { font-size: 20px } }
		#a { color: green !important; font: 12px/1.5 "Inter", serif }
		p { color: blue }
		a:hover { color: black }
	</style></head><body><!--[if mso]><table><tr><td><![endif]--><p id="a" style="color: white; margin: 1px">x</p><p class="note">y</p><a>z</a></body></html>`)
	for _, want := range []string{
		`<p id="a" style="color: green !important; font: 12px/1.5 &#34;Inter&#34;,serif; margin: 1px">x</p>`,
		`<p class="note" style="color: red; margin: 0">y</p>`,
		`<a>z</a>`,
		"@media (max-width: 600px) { p { font-size: 20px } }",
		"a:hover { color: black }",
		"<!--[if mso]><table><tr><td><![endif]-->",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s in\n%s", want, got)
		}
	}
	if strings.Contains(got, "#a {") || strings.Contains(got, "margin: 0;  }") {
		t.Errorf("rules were left:\n%s", got)
	}
	if got := render("<style>p{color:red}</style><p>x</p>"); strings.Contains(got, "<style") || !strings.Contains(got, `<p style="color: red">x</p>`) {
		t.Errorf("got %s", got)
	}
	for _, odd := range []string{
		"<style>p{color:red", "<style>}}}{{p", "<style>@media {", "<style><!-- p{color:red} --></style><p>", "<style media=print>p{color:red}</style><p>x",
		"<p>no style</p>", "<style></style><p>x</p>", "<style>p:::x{a:b}[{}</style><p>x</p>", "<!--0--><style>p{color:red}</style><!--7-->",
	} {
		if got := render(strings.ReplaceAll(odd, "{{", "{ {")); got == "" {
			t.Errorf("%s was lost", odd)
		}
	}
	for source, want := range map[string]string{
		// Outlook evaluates these; as comments they would hide nothing from it.
		"<style>p{color:red}</style><body><![if !mso]><p>x</p><![endif]>": `<![if !mso]><p style="color: red">x</p><![endif]>`,
		// Nested rules stay in the style sheet, without the declarations of the outer rule.
		`<style>p { color: red; b { color: blue } margin: 0; @media print { i { color: green } } }</style><p><b>x</b></p>`: "<style>p {\nb { color: blue }\n@media print { i { color: green } }\n}\n</style></head><body><p style=\"color: red; margin: 0\"><b>x</b></p>",
		`<style>p:hover { b { color: blue } }</style><p>x</p>`:                                                             "<style>p:hover { b { color: blue } }\n</style>",
		`<style>p { --Hue: red; color: var(--Hue) }</style><p>x</p>`:                                                       `<p style="--Hue: red; color: var(--Hue)">`,
		// Mail programs have elements of their own, and evaluate conditional comments.
		`<style>#outlook a { padding: 0 } p { color: red } .ExternalClass, p { line-height: 100% } .w { width: 9px }</style><!--[if mso]><td class="w"><![endif]--><p>x</p>`: "<style>#outlook a { padding: 0 }\n.ExternalClass, p { line-height: 100% }\n.w { width: 9px }\n</style>",
		// No declaration of an element's own style is lost.
		`<style>p { color: red }</style><p style="--Hue: 7; MARGIN: 0; 20px; padding: 0">x</p>`: `<p style="color: red; --Hue: 7; margin: 0; padding: 0">`,
	} {
		if got := render(source); !strings.Contains(got, want) {
			t.Errorf("%s\ngives %s\nwithout %s", source, got, want)
		}
	}
	if got := render("<!--0--><style>p{color:red}</style><p><!--7--></p>"); !strings.Contains(got, "<!--0-->") || !strings.Contains(got, "<!--7-->") {
		t.Errorf("comments were lost: %s", got)
	}
	// Too large to inline, so it is left unchanged.
	large := "<style>" + strings.Repeat("p{color:red}", 1900) + "</style>" + strings.Repeat("<b>", 5000)
	if got := render(large); got != large {
		t.Error("a very large html was changed")
	}
}

// An HTML whose styles would cost far more than its size is left unchanged: each of these would
// take gigabytes or years.
func TestInlineCSSBounds(t *testing.T) {
	needtest.Full(t, "the size of templates")
	declarations, tags, attributes := strings.Builder{}, strings.Builder{}, strings.Builder{}
	for i := range 5000 {
		fmt.Fprintf(&declarations, "p%d:v;", i)
		fmt.Fprintf(&attributes, " p%d", i)
		if i < 500 {
			fmt.Fprintf(&tags, "<b x%d>", i)
		}
	}
	var links strings.Builder
	for i := range 45 {
		fmt.Fprintf(&links, "<a h=%d>%s", i, strings.Repeat("<div>", 10))
	}
	for what, source := range map[string]string{
		"links that go on":         "<style>p{a:b}</style>" + links.String() + strings.Repeat("</div>", 450) + strings.Repeat("<p>x</p>", 50_000),
		"many declarations":        "<style>p{" + strings.Repeat(declarations.String(), 10) + "}</style><p>x",
		"many long attributes":     "<style>p{" + declarations.String() + "}</style>" + strings.Repeat("<p>", 50_000),
		"one long declaration":     "<style>p{a:" + strings.Repeat("b", 100_000) + "}</style>" + strings.Repeat("<p>", 5000),
		"ancestors":                "<style>h1 div div div div div div p{a:b}</style>" + strings.Repeat("<div>", 400) + "<p>",
		"siblings":                 "<style>h1 ~ p ~ p{a:b}</style>" + strings.Repeat("<p>", 50_000),
		"a long attribute":         "<style>" + strings.Repeat("[t~=z]{a:b}", 1900) + `</style><p t="` + strings.Repeat("x ", 300_000) + `">`,
		"a long class":             "<style>" + strings.Repeat(".z{a:b}", 1900) + `</style><p class="z ` + strings.Repeat("x ", 300_000) + `">`,
		"a long selector":          "<style>p" + strings.Repeat(".z", 100_000) + "{a:b}</style>" + strings.Repeat("<p class=z>", 60_000),
		"long values":              "<style>" + strings.Repeat(`[t*="`+strings.Repeat("A", 100_000)+`" i]{a:b}`, 4) + "</style>" + strings.Repeat("<p t=x>", 60_000),
		"a class again and again":  "<style>" + strings.Repeat(".z{a:b}", 1900) + `</style><p class="` + strings.Repeat("z ", 300_000) + `">`,
		"bodies":                   "<style>p{a:b}</style><body" + attributes.String() + ">" + strings.Repeat("<body a>", 50_000),
		"texts side by side":       "<style>p{a:b}</style><p>" + strings.Repeat("xxxx</i>", 100_000),
		"texts before a table":     "<style>p{a:b}</style><table>" + strings.Repeat("xxxx<tr>", 100_000),
		"tags that go on":          "<style>p{a:b}</style><p>" + tags.String() + strings.Repeat("<p>x", 50_000),
		"tags that go on, and not": "<style>p{a:b}</style>" + strings.ReplaceAll(tags.String(), "<b", `<i a="b">x</i><a h=1><i>x</i><img alt='x'/></a><b`) + strings.Repeat("<p>x", 50_000),
		"tags that go on quoted":   "<style>p{a:b}</style><p>" + strings.ReplaceAll(tags.String(), "x", `y=">" x`) + strings.Repeat("<p>x", 50_000),
	} {
		if got := inlineCSS(source); got != source {
			t.Errorf("%s: the html of %d bytes was changed, into %d", what, len(source), len(got))
		}
	}
	// The size of a long newsletter is no reason to leave it unchanged.
	mail := "<style>td{a:b}</style><table>" + strings.Repeat(`<tr><td><b>x</b> <font color="red" size='2'><i>y</i></font> <a href="https://x.example/a/b?c=d&amp;e=f" class="l" style="color: red; margin: 0" target="_blank">z</a></td></tr>`, 2000) + "</table>"
	if got := inlineCSS(mail); strings.Count(got, `<td style="a: b">`) != 2000 {
		t.Error("an ordinary html was left as it is")
	}
	if got := inlineCSS("<style>[t#=(a.*b)]{a:b}</style><p t=ab>x</p>"); !strings.Contains(got, "<p t=\"ab\">x") {
		t.Errorf("an expression was tried: %s", got)
	}
}

// Too many selectors take no more memory than those that are applied.
func TestManySelectors(t *testing.T) {
	for what, sheet := range map[string]string{"of one rule": strings.Repeat("a,", 100_000) + "a{b:c}", "of a rule each": strings.Repeat("a{}", 100_000)} {
		source := "<style>" + sheet + "</style><p>x"
		if made := testing.AllocsPerRun(1, func() { inlineCSS(source) }); made > 200_000 || inlineCSS(source) != source {
			t.Errorf("%s: %.0f allocations", what, made)
		}
	}
}

// Selectors match as in cascadia, with the same specificity.
func TestSelectors(t *testing.T) {
	root, err := html.Parse(strings.NewReader(`<div id="a" class="x y"><p title="a, b > c ]">1</p>-<!-- --><p class="x">2</p><ul><li>3</li><li><b class="a.b">4</b></li></ul></div><p>`))
	if err != nil {
		t.Fatal(err)
	}
	matched := 0
	for _, list := range []string{
		"p", "div p", "div > p", "body>p", "p+p", "p ~ ul b", "li+li", "li ~ li, #a > .x", "div  b ,\tli", `[title="a, b > c ]"]`, `p[title='a, b > c ]'] + .x`,
		"*", "ul *", "P", "*.x", ".y.x", "div#a", "P.x", ".x.y p.x", "div div p", "html body #a li b", "p[title^=a]~*", "body * + * > li b", "p ~ p ~ *", " p ", `b.a\.b`, `div .a\.b`, "p#a.x[title]",
		"> p", "p >", "p > > p", "p,", ",p", "", " ", "p{", "[", `[title="a`, "p+~p", `p\`, "p,,p", "p p\\", "é > p", "p]", "p~", "p\"a b\"",
	} {
		want, err := cascadia.ParseGroup(list)
		got, ok := readSelectors(list)
		if ok != (err == nil) || len(got) != len(want) {
			t.Errorf("%q is read as %v, %t; cascadia as %v, %v", list, got, ok, want, err)
			continue
		}
		for i := range got {
			if got[i].specificity() != want[i].Specificity() {
				t.Errorf("%q weighs %v, not %v", list, got[i].specificity(), want[i].Specificity())
			}
			for n := range root.Descendants() {
				m := n.Type == html.ElementNode && got[i].matches(n, len(got[i])-1, &budget{steps: 10_000})
				if m != want[i].Match(n) {
					t.Errorf("%q matches %s: %t", list, n.Data, m)
				}
				key := got[i][len(got[i])-1].key
				if m && len(candidateRules(n, map[string][]int{key: {0}}, &budget{steps: 1000})) == 0 {
					t.Errorf("%q is not tried for %s: %q", list, n.Data, key)
				}
				if m {
					matched++
				}
			}
		}
	}
	if matched < 30 {
		t.Errorf("only %d elements were matched", matched)
	}
}

func FuzzTemplate(f *testing.F) {
	f.Add("Hi {{name}} {{#each list}}{{this}}{{else}}x{{/each}}", `{"name":"x","list":[1,"b",{"c":null}]}`)
	f.Add("{{#if a.b}}{{{c}}}{{else}}{{../d}}{{/if}}<style>p{color:red}</style><p>", `{"a":{"b":true},"c":"<p>"}`)
	f.Add("{{!-- --}}\\{{x}}{{@index}}", `{}`)
	f.Fuzz(func(t *testing.T, source, variables string) {
		c, err := Compile(Content{Subject: "s", HTML: source, Text: source, InlineCSS: true})
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Fatalf("%v", err)
			}
			return
		}
		d := json.NewDecoder(strings.NewReader(variables))
		d.UseNumber()
		var given map[string]any
		_ = d.Decode(&given)
		out, err := c.Render(given)
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Fatalf("%v", err)
		}
		if strings.ContainsAny(out.Subject, "\r\n") {
			t.Fatalf("%q", out.Subject)
		}
	})
}

func BenchmarkRender(b *testing.B) {
	c, err := Compile(Content{Subject: "Order {{order}}", HTML: "<ul>{{#each items}}<li>{{name}}: {{price}}</li>{{/each}}</ul>"})
	if err != nil {
		b.Fatal(err)
	}
	var items []string
	for i := range 50 {
		items = append(items, fmt.Sprintf(`{"name":"Item %d","price":%d}`, i, i))
	}
	given := values(b, `{"order":1,"items":[`+strings.Join(items, ",")+`]}`)
	for b.Loop() {
		if _, err := c.Render(given); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkNewsletter renders 16 KB of HTML with styles and links, and derives the text.
func BenchmarkNewsletter(b *testing.B) {
	var html strings.Builder
	html.WriteString(`<!doctype html><html><head><style>p { color: #333; margin: 0 } a { color: #06c } .card td { padding: 8px } h2, h3 { font: 20px serif }
@media (max-width: 600px) { td { width: 100% } }</style></head><body><!--[if mso]><table><tr><td><![endif]-->`)
	for i := 0; html.Len() < 16<<10; i++ {
		fmt.Fprintf(&html, `<table class="card" width="600" cellpadding="0"><tr><td><img src="https://cdn.example.com/%d.png" alt="Picture"></td>
<td><h2>What is new in part %d, {{name}}</h2><p style="line-height: 1.5">Some <b>words</b> about the <i>matter</i>, which go on for a while, so that there
is something to read in each card of the letter &amp; its friends.<br><a class="more" href="https://www.example.com/read?part=%d&amp;to={{id}}">Read on</a></p></td></tr></table>
`, i, i, i)
	}
	given := values(b, `{"name":"Ann","id":77}`)
	for _, inline := range []bool{false, true} {
		c, err := Compile(Content{Subject: "News for {{name}}", HTML: html.String() + "</body></html>", InlineCSS: inline})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("inlined=%v", inline), func(b *testing.B) {
			for b.Loop() {
				if _, err := c.Render(given); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFramework inlines the rules of a mail framework, of which each element matches few.
func BenchmarkFramework(b *testing.B) {
	var source strings.Builder
	source.WriteString("<style>")
	for i := range 1000 {
		fmt.Fprintf(&source, "table.row-%d td.inner > p, .text-%d { padding: %dpx; margin: 0 }\n", i, i, i)
	}
	source.WriteString("</style>")
	for i := range 400 {
		fmt.Fprintf(&source, `<table class="row row-%d" width="600"><tr><td class="inner"><p class="small text-%d">Hello</p></td></tr></table>`, i, i)
	}
	for b.Loop() {
		if inlineCSS(source.String()) == source.String() {
			b.Fatal("it was left as it is")
		}
	}
}
