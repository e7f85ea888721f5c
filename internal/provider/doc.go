// Package provider speaks to language models: it turns a hob.Request into the wire form of one vendor and the vendor's
// stream back into hob.Delta values. Each provider is one file that registers itself with add; New and Open are the
// only way in. Three dialects are written out here (OpenAI's chat completions, Anthropic's Messages and Google's Gemini
// API); the provider scripted needs neither network nor key.
//
// Everything that differs between vendors, and between models of one vendor, is read exactly and repaired nowhere
// silently: how tool calls arrive in pieces is the business of one assembler, what a model family accepts is a row of a
// table, retrying is done in one place.
//
// The package does not decide what to do about a failed call, keeps no history and runs no tool: that is package engine.
// It opens no connection by itself either: its HTTP clients come from package egress.
package provider
