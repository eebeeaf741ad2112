// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"errors"
	"html"
	"io"
	"strconv"
	"strings"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/template"
)

// previewTemplate renders the content in a form, saved or not, for the frame next to the form.
func (d *Dashboard) previewTemplate(v *requestContext) (actionResult, error) {
	c, err := v.formTemplate()
	if err == nil {
		var r template.Output
		if r, err = d.Templates.PreviewContent(v.ctx, v.session.Account, c, v.formPreviewValues()); err == nil {
			v.writeTemplatePreview(r)
			return actionResult{}, errResponded
		}
	}
	return actionResult{}, v.writePreviewFault(err)
}

// previewVersion renders a version with its fallbacks only.
func (d *Dashboard) previewVersion(v *requestContext) error {
	number, _ := strconv.Atoi(v.r.PathValue("n"))
	t, err := d.findVersion(v, number)
	if err != nil {
		return err
	}
	r, err := d.Templates.Preview(v.ctx, v.session.Account, t.ID, number, nil)
	if err != nil {
		return v.writePreviewFault(err)
	}
	v.writeTemplatePreview(r)
	return nil
}

// previewPaneStyle is the style of the frame, which can't load the style sheet.
const previewPaneStyle = `<!doctype html><html lang="en"><meta name="color-scheme" content="light"><title>Preview</title><style>
html,body{height:100%;margin:0}body{font:15px/1.5 system-ui,sans-serif;display:flex;flex-direction:column;background:#fff;color:#171a21}
header{padding:10px 14px;border-bottom:1px solid #e1e4ea;background:#f6f7f9;overflow-wrap:anywhere}header strong{display:block}
p{margin:4px 0 0;font-size:13px;color:#565e6d}p.bad{color:#b3261e}iframe{flex:1;border:0;width:100%;min-height:180px}
details{border-top:1px solid #e1e4ea;padding:8px 14px;font-size:13px}pre{white-space:pre-wrap;overflow-wrap:anywhere;max-height:200px;overflow:auto}</style>`

// writeTemplatePreview responds with a rendered template, in its own frame.
func (v *requestContext) writeTemplatePreview(r template.Output) {
	var out strings.Builder
	out.WriteString(previewPaneStyle + "<header><strong>" + html.EscapeString(r.Subject) + "</strong>")
	if len(r.Missing) > 0 {
		out.WriteString(`<p class="bad">Without a value: ` + html.EscapeString(strings.Join(r.Missing, ", ")) + "</p>")
	}
	if len(r.Unused) > 0 {
		out.WriteString("<p>Not used: " + html.EscapeString(strings.Join(r.Unused, ", ")) + "</p>")
	}
	out.WriteString("</header>")
	open := " open"
	if r.HTML != "" {
		out.WriteString(`<iframe sandbox title="The html" srcdoc="` + html.EscapeString(messageStyle+r.HTML) + `"></iframe>`)
		open = ""
	}
	out.WriteString("<details" + open + "><summary>Plain text</summary><pre>" + html.EscapeString(r.Text) + "</pre></details>")
	v.writePreviewHTML(out.String())
}

// writePreviewFault responds with the errors of a template.
func (v *requestContext) writePreviewFault(err error) error {
	var f *fault.Error
	if !errors.As(err, &f) || f.Kind != fault.Invalid {
		return err
	}
	out := previewPaneStyle + `<header><strong>There is nothing to preview yet</strong>`
	for _, field := range f.Fields {
		out += `<p class="bad">` + html.EscapeString(field.Path+": "+field.Message) + "</p>"
	}
	v.writePreviewHTML(out + "</header>")
	return errResponded
}

func (v *requestContext) writePreviewHTML(text string) {
	h := v.w.Header()
	h.Set("Content-Security-Policy", previewCSP)
	h.Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(v.w, text) // the client may have disconnected
}
