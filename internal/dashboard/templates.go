// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"github.com/mailstead/mailstead/internal/template"
)

func (d *Dashboard) templates(v *requestContext) (page, error) {
	p := v.listPage()
	list, more, err := d.Templates.List(v.ctx, v.session.Account, p)
	if err != nil {
		return page{}, err
	}
	data := struct {
		List  []template.Template
		Pager pager
	}{List: list}
	if n := len(list); n > 0 {
		data.Pager = newPager("/templates", p, n, more, list[0].ID, list[n-1].ID)
	}
	return page{Template: "templates", Title: "Templates", Section: "templates", Data: data}, nil
}

// templatePage is the data of a template's page.
type templatePage struct {
	Template template.Template // zero for a new template
	Rows     []variableRow
	Types    [][2]string
	Versions []template.Version // the newest versions
}

// maxShownVersions is the maximum number of versions on a template's page.
const maxShownVersions = 5

func (d *Dashboard) newTemplate(v *requestContext) (page, error) {
	e := templatePage{Types: variableTypes, Rows: newVariableRows(nil)}
	if v.form != nil {
		e.Rows = formVariableRows(v.form)
	}
	return page{Template: "template-new", Title: "New template", Section: "templates", Data: e}, nil
}

func (d *Dashboard) addTemplate(v *requestContext) (actionResult, error) {
	content, err := v.formTemplate()
	if err != nil {
		return actionResult{}, err
	}
	made, err := d.Templates.Create(v.ctx, v.session.Account, template.CreateParams{Name: v.formText("name"), Alias: v.formText("alias"), Content: content})
	return actionResult{RedirectTo: "/templates/" + made.ID.String(), Summary: "Made the template “" + made.Name + "”."}, err
}

func (d *Dashboard) template(v *requestContext) (page, error) {
	id, err := v.pathID("id")
	if err != nil {
		return page{}, err
	}
	e := templatePage{Types: variableTypes}
	if e.Template, err = d.Templates.Get(v.ctx, v.session.Account, id); err != nil {
		return page{}, err
	}
	if e.Versions, _, err = d.Templates.Versions(v.ctx, v.session.Account, id, 0, maxShownVersions); err != nil {
		return page{}, err
	}
	e.Rows = newVariableRows(e.Template.Variables)
	if v.form != nil && v.form.Has("key") {
		e.Rows = formVariableRows(v.form)
	}
	return page{Template: "template", Title: e.Template.Name, Section: "templates", Data: e}, nil
}

func (d *Dashboard) changeTemplate(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	c, err := v.formTemplate()
	if err != nil {
		return actionResult{}, err
	}
	name, alias := v.formText("name"), v.formText("alias")
	t, err := d.Templates.Update(v.ctx, v.session.Account, id, template.Change{
		Name: &name, Alias: &alias, Subject: &c.Subject, HTML: &c.HTML, Text: &c.Text, InlineCSS: &c.InlineCSS, Variables: &c.Variables, Draft: v.form.Has("draft"),
	})
	told := "Saved and published the template “" + t.Name + "”."
	if t.Published != t.Latest {
		told = "Saved a draft of the template “" + t.Name + "”: its published version is sent as before."
	}
	return actionResult{RedirectTo: "/templates/" + id.String(), Summary: told}, err
}

func (d *Dashboard) publishTemplate(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	number, err := v.formInt("version")
	if err != nil {
		return actionResult{}, err
	}
	t, err := d.Templates.Publish(v.ctx, v.session.Account, id, number)
	return actionResult{RedirectTo: "/templates/" + id.String() + "/versions", Summary: "Published version " + v.formText("version") + " of the template “" + t.Name + "”."}, err
}

func (d *Dashboard) duplicateTemplate(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	old, err := d.Templates.Get(v.ctx, v.session.Account, id)
	if err != nil {
		return actionResult{}, err
	}
	made, err := d.Templates.Duplicate(v.ctx, v.session.Account, id, v.formText("copy"))
	return actionResult{RedirectTo: "/templates/" + made.ID.String(), Summary: "Copied the template “" + old.Name + "” to “" + made.Name + "”."}, renameField(err, "name", "copy")
}

func (d *Dashboard) deleteTemplate(v *requestContext) (actionResult, error) {
	id, err := v.pathID("id")
	if err != nil {
		return actionResult{}, err
	}
	old, err := d.Templates.Get(v.ctx, v.session.Account, id)
	if err != nil {
		return actionResult{}, err
	}
	return actionResult{RedirectTo: "/templates", Summary: "Deleted the template “" + old.Name + "”."}, d.Templates.Delete(v.ctx, v.session.Account, id)
}

// findVersion returns the template that the path names, with the given version.
func (d *Dashboard) findVersion(v *requestContext, number int) (template.Template, error) {
	id, err := v.pathID("id")
	if err != nil {
		return template.Template{}, err
	}
	if number < 1 {
		return template.Template{}, notFound()
	}
	return d.Templates.GetVersion(v.ctx, v.session.Account, id, number)
}
