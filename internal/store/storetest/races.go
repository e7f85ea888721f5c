package storetest

import (
	"encoding/json"
	"fmt"
	"time"

	"hob"
)

// toolChangesAtOnce: each change is a version of its own, whether a patch or a restored one.
func toolChangesAtOnce(w *world) {
	const callers = 12
	made := w.newTool("busy", nil)
	together(callers, func(i int) {
		var err error
		if i%3 == 0 {
			_, err = w.s.RestoreTool(w.ctx, w.service, made.ID, 1)
		} else {
			_, err = w.s.UpdateTool(w.ctx, w.service, made.ID, hob.ToolPatch{Description: point(fmt.Sprint("d", i))})
		}
		if err != nil {
			w.t.Errorf("caller %d: %v", i, err)
		}
	})
	got, err := w.s.Tool(w.ctx, w.service, made.ID)
	w.must(err)
	same(w, "version", got.Version, 1+callers)
}

// agentPatchesAtOnce: a patch changes what it sets and undoes no other.
func agentPatchesAtOnce(w *world) {
	for round := range 8 {
		name, model := fmt.Sprint("n", round), fmt.Sprint("m", round)
		patches := []hob.AgentPatch{{Name: &name}, {Model: &model}}
		together(len(patches), func(i int) {
			if _, err := w.s.UpdateAgent(w.ctx, w.service, w.agent.ID, patches[i]); err != nil {
				w.t.Error(err)
			}
		})
		got, err := w.s.Agent(w.ctx, w.service, w.agent.ID)
		w.must(err)
		same(w, "name and model", got.Name+" "+got.Model, name+" "+model)
	}
}

func bucketPatchesAtOnce(w *world) {
	w.newBucket("busy")
	for round := range 8 {
		size, public := point(int64(round+1)), round%2 == 0
		patches := []hob.BucketPatch{{Public: &public}, {MaxSize: &size}}
		together(len(patches), func(i int) {
			if _, err := w.s.UpdateBucket(w.ctx, w.service, "busy", patches[i]); err != nil {
				w.t.Error(err)
			}
		})
		got, err := w.s.Bucket(w.ctx, w.service, "busy")
		w.must(err)
		same(w, "public and size", fmt.Sprint(got.Public, *got.MaxSize), fmt.Sprint(public, *size))
	}
}

// bucketDeletedBeside: who comes too late finds no bucket; nobody meets the database's own errors.
func bucketDeletedBeside(w *world) {
	for round := range 12 {
		id := fmt.Sprint("b", round)
		w.newBucket(id)
		w.newBucket("from-" + id)
		w.putFile("from-"+id, "c", fmt.Sprint("blob-c", round))
		w.putFile("from-"+id, "m", fmt.Sprint("blob-m", round))
		together(8, func(i int) {
			var err error
			switch i {
			case 0, 1:
				time.Sleep(time.Duration(round) * 200 * time.Microsecond)
				err = w.s.DeleteBucket(w.ctx, w.service, id)
			case 2:
				_, err = w.s.MoveFile(w.ctx, w.service, hob.FileMove{Bucket: "from-" + id, Name: "m", ToBucket: id, ToName: "m"})
			case 3:
				_, err = w.s.CopyFile(w.ctx, w.service, hob.FileMove{Bucket: "from-" + id, Name: "c", ToBucket: id, ToName: "c"})
			case 4:
				_, _, err = w.s.DeleteFiles(w.ctx, w.service, id, "c", "m", "f5", "f6", "f7")
			default:
				blob := fmt.Sprintf("blob-%d-%d", round, i)
				_, err = w.s.PutFile(w.ctx, w.service, hob.FilePut{File: hob.File{Bucket: id, Name: fmt.Sprint("f", i), Blob: blob, Size: 1}})
			}
			if k := hob.KindOf(err); err != nil && k != hob.NotFound && k != hob.Conflict && k != hob.Unavailable {
				w.t.Errorf("round %d, caller %d: %v", round, i, err)
			}
		})
	}
}

// toolDeletedBeside: who assigns a tool, or changes it, while it is deleted finds none; so with an agent.
func toolDeletedBeside(w *world) {
	for round := range 12 {
		tool := w.newTool(fmt.Sprint("t", round), nil)
		gone, err := w.s.CreateAgent(w.ctx, w.service, hob.Agent{Name: "a", Model: "m"})
		w.must(err)
		together(8, func(i int) {
			var err error
			switch i {
			case 0:
				_, err = w.s.DeleteTool(w.ctx, w.service, tool.ID)
			case 1:
				err = w.s.DeleteAgent(w.ctx, w.service, gone.ID)
			case 2:
				_, err = w.s.UpdateTool(w.ctx, w.service, tool.ID, hob.ToolPatch{Name: point(fmt.Sprint("r", round))})
			case 3:
				_, err = w.s.RestoreTool(w.ctx, w.service, tool.ID, 1)
			case 4, 5:
				id := tool.ID
				_, err = w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: w.agent.ID, ToolType: "custom", ToolName: tool.Name, ToolID: &id})
			case 6:
				_, err = w.s.Assign(w.ctx, w.service, hob.Assignment{Agent: gone.ID, ToolType: "builtin", ToolName: "current_time", ConfigOverride: json.RawMessage(`{}`)})
			default:
				_, err = w.s.UpdateAgent(w.ctx, w.service, gone.ID, hob.AgentPatch{Name: point("b")})
			}
			if k := hob.KindOf(err); err != nil && k != hob.NotFound && k != hob.Conflict {
				w.t.Errorf("round %d, caller %d: %v", round, i, err)
			}
		})
	}
}
