// Talks to the fake through the vendors' own clients and prints what they made of it, as one JSON object.
import Anthropic from '@anthropic-ai/sdk';
import { FunctionCallingConfigMode, GoogleGenAI, ThinkingLevel } from '@google/genai';
import OpenAI from 'openai';

const [base, key] = process.argv.slice(2);
const openai = new OpenAI({ baseURL: `${base}/v1`, apiKey: key, maxRetries: 0 });
const anthropic = new Anthropic({ baseURL: base, apiKey: key, maxRetries: 0 });
const google = (apiKey) => new GoogleGenAI({ apiKey, httpOptions: { baseUrl: base, retryOptions: { attempts: 1 } } });
const gemini = google(key);
const out = {};

const parameters = { type: 'object', properties: { step: { type: 'number' } } };
const tools = [{ type: 'function', function: { name: 'count', description: 'counts', parameters } }];
const ask = (content, more = {}) => ({ model: 'gpt-4o', messages: [{ role: 'user', content }], ...more });

// failure tells how the client classed an error.
async function failure(promise) {
  try {
    await promise;
    return { none: true };
  } catch (e) {
    return { name: e.constructor.name, status: e.status ?? 0, code: e.code ?? '', type: e.type ?? '' };
  }
}

async function openaiStream() {
  const stream = await openai.chat.completions.create(
    ask('text', { stream: true, stream_options: { include_usage: true } }));
  let text = '', usage = null, finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  return { text, finish, usage: usage.total_tokens === usage.prompt_tokens + usage.completion_tokens };
}

// openaiTools runs the client's own tool loop over streams, and then the same without streaming.
async function openaiTools(stream) {
  const seen = [];
  const runner = openai.chat.completions.runTools({
    ...ask('tools'), stream,
    tools: [{ type: 'function', function: { name: 'count', description: 'counts', parameters, parse: JSON.parse,
      function: ({ step }) => { seen.push(step); return `counted ${step}`; } } }],
  });
  return { text: await runner.finalContent(), seen };
}

async function openaiParallel() {
  const stream = openai.chat.completions.stream(ask('parallel', { tools }));
  const message = (await stream.finalChatCompletion()).choices[0].message;
  return message.tool_calls.map((c) => [c.id, c.function.name, JSON.parse(c.function.arguments)]);
}

out.openai = {
  stream: await openaiStream(),
  toolsStream: await openaiTools(true),
  tools: await openaiTools(false),
  parallel: await openaiParallel(),
  once: (await openai.chat.completions.create(ask('text'))).choices[0],
  models: (await openai.models.list()).data.map((m) => m.id),
  errors: {
    rateLimit: await failure(openai.chat.completions.create(ask('error 429'))),
    server: await failure(openai.chat.completions.create(ask('error 500'))),
    key: await failure(new OpenAI({ baseURL: `${base}/v1`, apiKey: 'wrong', maxRetries: 0 }).chat.completions.create(ask('text'))),
    model: await failure(openai.chat.completions.create({ ...ask('text'), model: 'none' })),
    orphan: await failure(openai.chat.completions.create(
      { model: 'gpt-4o', messages: [{ role: 'tool', tool_call_id: 'x', content: 'y' }] })),
    cut: await failure(openai.chat.completions.create(ask('cut at once'))),
    cutStream: await failure((async () => { for await (const _ of await openai.chat.completions.create(ask('cut', { stream: true }))); })()),
    inStream: await failure((async () => { for await (const _ of await openai.chat.completions.create(ask('error inside', { stream: true }))); })()),
  },
};

const claude = (content, more = {}) => ({ model: 'claude-x', max_tokens: 500, messages: [{ role: 'user', content }], ...more });
const claudeTools = [{ name: 'count', description: 'counts', input_schema: parameters }];

async function anthropicLoop() {
  const request = claude('tools', { tools: claudeTools });
  const seen = [];
  for (;;) {
    const message = await anthropic.messages.stream(request).finalMessage();
    const uses = message.content.filter((b) => b.type === 'tool_use');
    if (uses.length === 0) {
      return { text: message.content.map((b) => b.text ?? '').join(''), seen, stop: message.stop_reason };
    }
    seen.push(...uses.map((b) => b.input.step));
    request.messages.push({ role: 'assistant', content: message.content });
    request.messages.push({ role: 'user', content: uses.map((b) => ({ type: 'tool_result', tool_use_id: b.id, content: 'ok' })) });
  }
}

const thought = await anthropic.messages.stream(claude('thoughts')).finalMessage();
out.anthropic = {
  loop: await anthropicLoop(),
  thought: thought.content.map((b) => [b.type, b.thinking ?? b.text, Boolean(b.signature)]),
  once: (await anthropic.messages.create(claude('text'))).content,
  errors: {
    rateLimit: await failure(anthropic.messages.create(claude('error 429'))),
    overloaded: await failure(anthropic.messages.create(claude('error 529'))),
    key: await failure(new Anthropic({ baseURL: base, apiKey: 'wrong', maxRetries: 0 }).messages.create(claude('text'))),
    orphan: await failure(anthropic.messages.create(
      { model: 'claude-x', max_tokens: 5, messages: [{ role: 'user', content: [{ type: 'tool_result', tool_use_id: 'x' }] }] })),
    inStream: await failure(anthropic.messages.stream(claude('error inside')).finalMessage()),
  },
};
const geminiAsk = (contents, config = {}, model = 'gemini-2.5-flash') => ({ model, contents, config });
const geminiTools = [{ functionDeclarations: [{ name: 'count', description: 'counts', parametersJsonSchema: parameters }] }];

async function geminiStream(contents) {
  let text = '', thought = '', finish = null, usage = null;
  for await (const chunk of await gemini.models.generateContentStream(geminiAsk(contents,
    { systemInstruction: 'Be brief.', temperature: 1, thinkingConfig: { includeThoughts: true, thinkingBudget: 100 } }))) {
    for (const part of chunk.candidates?.[0]?.content?.parts ?? []) {
      if (part.thought) thought += part.text; else text += part.text ?? '';
    }
    finish = chunk.candidates?.[0]?.finishReason ?? finish;
    usage = chunk.usageMetadata ?? usage;
  }
  return { text, thought, finish, usage: usage.totalTokenCount > 0 };
}

// geminiLoop calls tools in a chat of the client's, which sends back everything as it came, signatures included.
async function geminiLoop(model) {
  const chat = gemini.chats.create({ model, config: { tools: geminiTools } });
  const seen = [];
  let answer = await chat.sendMessage({ message: 'tools' });
  while (answer.functionCalls?.length) {
    seen.push(...answer.functionCalls.map((c) => c.args.step));
    answer = await chat.sendMessage({ message: answer.functionCalls.map((c) => (
      { functionResponse: { id: c.id, name: c.name, response: { output: 'ok' } } })) });
  }
  return { text: answer.text, seen };
}

const listed = [];
for await (const m of await gemini.models.list()) listed.push(m.name);
const parallel = await gemini.models.generateContent(geminiAsk('parallel', { tools: geminiTools,
  toolConfig: { functionCallingConfig: { mode: FunctionCallingConfigMode.AUTO } } }));
const form = await gemini.models.generateContent(geminiAsk('text', { responseMimeType: 'application/json', responseJsonSchema: parameters }));
const image = await gemini.models.generateContent(geminiAsk([{ role: 'user', parts: [
  { text: 'text' }, { inlineData: { mimeType: 'image/png', data: 'iVBORw0KGgo=' } }, { fileData: { mimeType: 'image/png', fileUri: 'https://x/y' } }] }],
{ thinkingConfig: { thinkingLevel: ThinkingLevel.LOW } }, 'gemini-3-pro-preview'));
out.gemini = {
  stream: await geminiStream('text'),
  thoughts: await geminiStream('thoughts'),
  loop: await geminiLoop('gemini-2.5-flash'),
  loopSigned: await geminiLoop('gemini-3-pro-preview'),
  parallel: parallel.functionCalls.map((c) => [c.id, c.name, c.args]),
  form: form.text, image: image.text, listed,
  errors: {
    rateLimit: await failure(gemini.models.generateContent(geminiAsk('error 429'))),
    server: await failure(gemini.models.generateContent(geminiAsk('error 500'))),
    key: await failure(google('wrong').models.generateContent(geminiAsk('text'))),
    model: await failure(gemini.models.generateContent(geminiAsk('text', {}, 'none'))),
    orphan: await failure(gemini.models.generateContent(geminiAsk([{ role: 'user', parts: [{ functionResponse: { name: 'x', response: {} } }] }]))),
    inStream: await failure((async () => { for await (const _ of await gemini.models.generateContentStream(geminiAsk('error inside'))); })()),
  },
};
console.log(JSON.stringify(out, null, 1));
