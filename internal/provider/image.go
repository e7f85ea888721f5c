package provider

import (
	"net/url"
	"path"
	"slices"
	"strings"

	"hob"
)

// Media types of images that the vendors document.
var (
	anthropicImages = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
	geminiImages    = []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}
)

// checkImages refuses images that the provider could not read, before anything is sent. Those of earlier turns, which may
// have been another model's to read, are only mentioned instead. types nil takes every image type: OpenAI's own list is
// shorter than those of the servers that copy its API. The error is a *hob.ProviderError.
func checkImages(provider string, r *hob.Request, f family, types []string) error {
	now := lastUser(r.Messages)
	copied := false
	for i := range r.Messages {
		parts := r.Messages[i].Parts
		for j, p := range parts {
			if p.Type != hob.ImagePart {
				continue
			}
			why := unreadable(p, f, types)
			if why == "" {
				continue
			}
			if i >= now {
				return refusedBefore(provider, "%s", strings.ReplaceAll(why, "{{model}}", quote(r.Model)))
			}
			if !copied {
				r.Messages, copied = slices.Clone(r.Messages), true
			}
			parts = slices.Clone(parts)
			parts[j] = hob.Part{Type: hob.TextPart, Text: "[a picture that this model cannot read]"}
			r.Messages[i].Parts = parts
		}
	}
	return nil
}

// unreadable says why a model cannot read an image, "" where it can.
func unreadable(p hob.Part, f family, types []string) string {
	if f.textOnly {
		return "the model {{model}} reads no images; use one that does"
	}
	kind, ok := imageType(p)
	switch {
	case !ok:
		return "an image must have an https: address, a data: address in base64, or bytes with a media type"
	case kind == "": // at an address: whoever fetches it sees
	case types == nil && strings.HasPrefix(kind, "image/"):
	case !slices.Contains(types, kind):
		return "images of type " + quote(kind) + " are not taken; use " + oneOf(types)
	}
	return ""
}

func oneOf(types []string) string {
	if types == nil {
		return "an image type, as image/png"
	}
	return strings.Join(types, ", ")
}

// imageType is the media type of an image, "" where only its address is known. ok is false for what is no image at all.
func imageType(p hob.Part) (kind string, ok bool) {
	if len(p.Data) > 0 {
		return strings.ToLower(p.MediaType), p.MediaType != ""
	}
	if strings.HasPrefix(p.URL, "data:") {
		kind, data, inline := splitDataURL(p.URL)
		return strings.ToLower(kind), inline && data != ""
	}
	u, err := url.Parse(p.URL)
	return "", err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// guessType is the media type that an address' ending tells, "" where it tells none.
func guessType(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return imageEndings[strings.ToLower(path.Ext(u.Path))]
}

// imageEndings are the file name endings of images. The table of the system differs from machine to machine.
var imageEndings = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".heic": "image/heic", ".heif": "image/heif",
}
