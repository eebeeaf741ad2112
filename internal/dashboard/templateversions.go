// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/template"
)

func (d *Dashboard) templateVersions(v *requestContext) (page, error) {
	id, err := v.pathID("id")
	if err != nil {
		return page{}, err
	}
	t, err := d.Templates.Get(v.ctx, v.session.Account, id)
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
	if data.Versions, more, err = d.Templates.Versions(v.ctx, v.session.Account, id, max(below, 0), 50); err != nil {
		return page{}, err
	}
	for _, x := range data.Versions {
		n := strconv.Itoa(x.Number)
		data.Choices = append(data.Choices, [2]string{n, "Version " + n})
	}
	if more {
		data.Older = "/templates/" + id.String() + "/versions?" + encodeQuery("below", strconv.Itoa(data.Versions[len(data.Versions)-1].Number))
	}
	return page{Template: "template-versions", Title: "Versions of " + t.Name, Section: "templates", Data: data}, nil
}

func (d *Dashboard) templateVersion(v *requestContext) (page, error) {
	number, _ := strconv.Atoi(v.r.PathValue("n"))
	t, err := d.findVersion(v, number)
	if err != nil {
		return page{}, err
	}
	return page{Template: "template-version", Title: t.Name + ", version " + strconv.Itoa(number), Section: "templates", Data: struct {
		Template template.Template
		Before   int // the version to compare with; 0 for none
		Rows     []variableRow
	}{t, number - 1, newVariableRows(t.Variables)[:len(t.Variables)]}}, nil
}

// partDiff is the change of one part of a template.
type partDiff struct {
	Part    string
	Changes []diffLine
}

func (d *Dashboard) compareVersions(v *requestContext) (page, error) {
	from, _ := strconv.Atoi(v.r.URL.Query().Get("from"))
	to, _ := strconv.Atoi(v.r.URL.Query().Get("to"))
	if from > to {
		from, to = to, from
	}
	old, err := d.findVersion(v, from)
	if err != nil {
		return page{}, err
	}
	now, err := d.findVersion(v, to)
	if err != nil {
		return page{}, err
	}
	data := struct {
		Template template.Template
		From, To int
		Parts    []partDiff
	}{Template: now, From: from, To: to}
	for _, part := range []struct{ name, old, now string }{
		{"Subject", old.Subject, now.Subject}, {"Html", old.HTML, now.HTML}, {"Plain text", old.Text, now.Text},
		{"Variables", formatVariables(old.Content), formatVariables(now.Content)}, {"Settings", formatSettings(old.Content), formatSettings(now.Content)},
	} {
		if changes := diff(part.old, part.now); changes != nil {
			data.Parts = append(data.Parts, partDiff{part.name, changes})
		}
	}
	return page{Template: "template-compare", Title: "Versions " + strconv.Itoa(from) + " and " + strconv.Itoa(to), Section: "templates", Data: data}, nil
}

// formatVariables formats variables, one per line.
func formatVariables(c template.Content) string {
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
			out.WriteString(", else " + formatValue(x.Fallback))
		}
		out.WriteString("\n")
	}
	return out.String()
}

func formatSettings(c template.Content) string {
	if c.InlineCSS {
		return "Style rules become attributes"
	}
	return "Style rules stay as they are"
}
