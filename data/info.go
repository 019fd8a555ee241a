package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// infoName is the file in which LLaMA-Factory describes data sets by name.
const infoName = "dataset_info.json"

// maxInfo is the largest such file that is read, in bytes.
const maxInfo = 16 << 20

// setInfo is what dataset_info.json says about one data set. Source: LLaMA-Factory,
// data/README.md.
type setInfo struct {
	FileName   string             `json:"file_name"`
	HubURL     string             `json:"hf_hub_url"`
	Subset     string             `json:"subset"`
	Formatting string             `json:"formatting"`
	Columns    map[string]*string `json:"columns"`
	Tags       map[string]string  `json:"tags"`
	Split      string             `json:"split"`
	NumSamples *int64             `json:"num_samples"`
	Ranking    bool               `json:"ranking"`
}

// elsewhere are the keys which say that a data set is not a local file.
var elsewhere = []string{"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"}

// unread are the columns that mt does not use, each with the reason.
var unread = map[string]string{
	"images": "mt trains on text", "videos": "mt trains on text", "audios": "mt trains on text",
	"kto_tag": "mt trains on pairs of answers, and not on single ones with a mark",
}

// readInfo reads the dataset_info.json in dir; nil where there is none.
func readInfo(dir string) (map[string]json.RawMessage, error) {
	name := filepath.Join(dir, infoName)
	text, err := readSmall(name, maxInfo)
	if err != nil || text == nil {
		return nil, err
	}
	var sets map[string]json.RawMessage
	if err := json.Unmarshal(text, &sets); err != nil {
		return nil, fmt.Errorf("%s: %w; it must be an object of data sets by name", name, err)
	}
	return sets, nil
}

// parseInfo makes a dataSet of the entry called name, and gives the file that it refers
// to. hub is Spec.Hub.
func parseInfo(name string, raw json.RawMessage, hub func(string) (string, error)) (set dataSet, file string, err error) {
	var keys map[string]json.RawMessage
	var in setInfo
	if err = json.Unmarshal(raw, &keys); err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		return set, "", fmt.Errorf("%q: %w", name, err)
	}
	if in.FileName == "" && in.HubURL != "" && in.Subset == "" && hub != nil {
		if in.FileName, err = hub(in.HubURL); err != nil {
			return set, "", fmt.Errorf("%q has hf_hub_url %s: %w", name, in.HubURL, err)
		}
	}
	if in.FileName == "" {
		for _, k := range elsewhere {
			if v, ok := keys[k]; ok {
				return set, "", fmt.Errorf("%q has %s %s, and mt reads local files only; download it (`hf download --repo-type dataset ...`) and give file_name", name, k, clip(v))
			}
		}
		return set, "", fmt.Errorf("%q has no file_name", name)
	}
	set = dataSet{Name: name}
	if set.Columns, set.Format, err = in.columns(); err != nil {
		return set, "", fmt.Errorf("%q: %w", name, err)
	}
	if in.NumSamples != nil {
		if set.Samples = *in.NumSamples; set.Samples < 1 {
			return set, "", fmt.Errorf("%q: num_samples is %d; it is at least 1", name, set.Samples)
		}
	}
	if in.Split == "" {
		in.Split = "train"
	}
	if set.Split, err = parseSplit(in.Split); err != nil {
		return set, "", fmt.Errorf("%q: %w", name, err)
	}
	return set, in.FileName, nil
}

// columns are the names that the entry gives to columns, and their format. Where an entry
// names any columns, those that it does not name are absent.
func (in *setInfo) columns() (*columns, format, error) {
	f := fmtAlpaca
	switch in.Formatting {
	case "", "alpaca":
	case "sharegpt", "openai":
		f = fmtShareGPT
	default:
		return nil, "", fmt.Errorf("formatting is %q; it is alpaca, sharegpt or openai", in.Formatting)
	}
	c := columnsOf(f)
	c.History = "" // absent unless the entry names it
	if in.Ranking {
		c.Chosen, c.Rejected, c.Turn = chosenField, rejectedField, true
	}
	if in.Columns == nil {
		c.System, c.Tools = "", ""
	}
	if err := in.nameColumns(c); err != nil {
		return nil, "", err
	}
	if in.Ranking {
		if c.Chosen == "" || c.Rejected == "" {
			return nil, "", errors.New("ranking is true: columns must name chosen and rejected")
		}
		c.Response, f = "", fmtPairs
	}
	if c.Messages != "" {
		return c, f, in.nameTags(c)
	}
	if len(in.Tags) > 0 {
		return nil, "", errors.New("tags are of formatting sharegpt")
	}
	if c.Response == "" && f != fmtPairs { // then the prompt is a column of plain text, for pre-training
		return &columns{Text: c.Prompt}, fmtText, nil
	}
	return c, f, nil
}

// nameColumns fills c from the entry's columns, if it has any.
func (in *setInfo) nameColumns(c *columns) error {
	if in.Columns == nil {
		return nil
	}
	named := map[string]*string{"system": &c.System, "tools": &c.Tools, "prompt": &c.Prompt, "query": &c.Query,
		"response": &c.Response, "history": &c.History, "messages": &c.Messages}
	if in.Ranking {
		named["chosen"], named["rejected"] = &c.Chosen, &c.Rejected
	}
	keep := c.Messages
	for _, p := range named {
		*p = ""
	}
	for _, k := range slices.Sorted(maps.Keys(in.Columns)) {
		v := in.Columns[k]
		if v == nil || *v == "" {
			continue
		}
		if why, ok := unread[k]; ok {
			return fmt.Errorf("columns has %s (%q): %s; remove the column", k, *v, why)
		}
		p, ok := named[k]
		if !ok && (k == "chosen" || k == "rejected") {
			return fmt.Errorf("columns has %s (%q) and ranking is not true; set it, or remove the column", k, *v)
		}
		if !ok {
			return fmt.Errorf("columns has %q; known are %s", k, strings.Join(slices.Sorted(maps.Keys(named)), ", "))
		}
		*p = *v
	}
	if keep != "" && c.Messages == "" {
		c.Messages = keep
	}
	if keep == "" && c.Prompt == "" {
		return errors.New("columns has no prompt")
	}
	return nil
}

// nameTags fills c's roles and names from the entry's tags.
func (in *setInfo) nameTags(c *columns) error {
	roles := map[string]string{"user_tag": "human", "assistant_tag": "gpt", "observation_tag": "observation", "function_tag": functionCall, "system_tag": "system"}
	if in.Tags == nil {
		return nil
	}
	c.Roles = map[string]string{}
	for tag, usual := range roles {
		name := usual
		if v, ok := in.Tags[tag]; ok && v != "" {
			name = v
		}
		c.Roles[name] = shareGPTRoles[usual]
	}
	for _, tag := range slices.Sorted(maps.Keys(in.Tags)) {
		switch v := in.Tags[tag]; {
		case roles[tag] != "":
		case tag == "role_tag" && v != "":
			c.Role = v
		case tag == "content_tag" && v != "":
			c.Content = v
		default:
			return fmt.Errorf("tags has %q: %q; known are role_tag, content_tag, %s", tag, v, strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
		}
	}
	return nil
}
