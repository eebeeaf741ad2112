// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/template"
)

func (d *Dashboard) versions(v *visit) (page, error) {
	id, err := v.id("id")
	if err != nil {
		return page{}, err
	}
	t, err := d.Templates.Get(v.ctx, v.in.Account, id)
	if err != nil {
		return page{}, err
	}
	below, _ := strconv.Atoi(v.r.URL.Query().Get("below"))
	data := struct {
		Template template.Template
		Versions []template.Version
		Choices  [][2]string
		Older    string
	}{Template: t}
	var more bool
	if data.Versions, more, err = d.Templates.Versions(v.ctx, v.in.Account, id, max(below, 0), 50); err != nil {
		return page{}, err
	}
	for _, x := range data.Versions {
		n := strconv.Itoa(x.Number)
		data.Choices = append(data.Choices, [2]string{n, "Version " + n})
	}
	if more {
		data.Older = "/templates/" + id.String() + "/versions?" + query("below", strconv.Itoa(data.Versions[len(data.Versions)-1].Number))
	}
	return page{Template: "template-versions", Title: "Versions of " + t.Name, Section: "templates", Data: data}, nil
}

func (d *Dashboard) templateVersion(v *visit) (page, error) {
	number, _ := strconv.Atoi(v.r.PathValue("n"))
	t, err := d.version(v, number)
	if err != nil {
		return page{}, err
	}
	return page{Template: "template-version", Title: t.Name + ", version " + strconv.Itoa(number), Section: "templates", Data: struct {
		Template template.Template
		Before   int // the version that it is compared with; 0 for none
		Rows     []variableRow
	}{t, number - 1, rowsOf(t.Variables)[:len(t.Variables)]}}, nil
}

// difference is what a part of a template has become.
type difference struct {
	Part    string
	Changes []change
}

func (d *Dashboard) compareVersions(v *visit) (page, error) {
	from, _ := strconv.Atoi(v.r.URL.Query().Get("from"))
	to, _ := strconv.Atoi(v.r.URL.Query().Get("to"))
	if from > to {
		from, to = to, from
	}
	old, err := d.version(v, from)
	if err != nil {
		return page{}, err
	}
	now, err := d.version(v, to)
	if err != nil {
		return page{}, err
	}
	data := struct {
		Template template.Template
		From, To int
		Parts    []difference
	}{Template: now, From: from, To: to}
	for _, part := range []struct{ name, old, now string }{
		{"Subject", old.Subject, now.Subject}, {"Html", old.HTML, now.HTML}, {"Plain text", old.Text, now.Text},
		{"Variables", declared(old.Content), declared(now.Content)}, {"Settings", settings(old.Content), settings(now.Content)},
	} {
		if changes := diff(part.old, part.now); changes != nil {
			data.Parts = append(data.Parts, difference{part.name, changes})
		}
	}
	return page{Template: "template-compare", Title: "Versions " + strconv.Itoa(from) + " and " + strconv.Itoa(to), Section: "templates", Data: data}, nil
}

// declared writes variables, one to a line.
func declared(c template.Content) string {
	var out strings.Builder
	for _, x := range c.Variables {
		out.WriteString(x.Key)
		if x.Type != "" {
			out.WriteString(" (" + x.Type + ")")
		}
		if x.Required {
			out.WriteString(", required")
		}
		if x.Fallback != nil {
			out.WriteString(", else " + written(x.Fallback))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func settings(c template.Content) string {
	if c.InlineCSS {
		return "Style rules become attributes"
	}
	return "Style rules stay as they are"
}
