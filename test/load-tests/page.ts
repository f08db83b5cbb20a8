/** A file in a real browser, and all that it logs or asks for, over the browser's DevTools protocol. */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { pathToFileURL } from 'node:url'
import { WebSocket } from 'ws'
import { program } from '../support/needs.ts'

interface Message {
  readonly id?: number
  readonly method?: string
  readonly sessionId?: string
  readonly params?: { readonly [name: string]: unknown }
  readonly result?: { readonly [name: string]: unknown }
}

export interface ReportPage {
  /** Console messages, and what the browser itself complains about. */
  readonly complaints: readonly string[]
  /** URLs that were asked for, the file's own among them. */
  readonly requests: readonly string[]
  /** Value of an expression in the page. */
  evaluate(expression: string): Promise<unknown>
  setColours(scheme: 'light' | 'dark'): Promise<void>
  close(): Promise<void>
}

/** Resolves when the file has been loaded. */
export async function openFile(path: string): Promise<ReportPage> {
  const profile = await mkdtemp(join(tmpdir(), 'sallyport-chromium-'))
  const flags = ['--headless=new', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run']
  const debugging = ['--remote-debugging-port=0', `--user-data-dir=${profile}`]
  const browser = spawn(program('chromium'), [...flags, ...debugging, 'about:blank'], {
    ...{ stdio: ['ignore', 'ignore', 'pipe'], detached: true },
  })
  const socket = new WebSocket(await address(browser.stderr!))
  await once(socket, 'open')
  const close = async () => {
    socket.terminate()
    const gone = once(browser, 'exit')
    process.kill(-browser.pid!, 'SIGKILL')
    await gone
    await rm(profile, { recursive: true, force: true, maxRetries: 5 })
  }
  try {
    return await load(socket, pathToFileURL(path).href, close)
  } catch (error) {
    await close()
    throw error
  }
}

async function address(stderr: NodeJS.ReadableStream): Promise<string> {
  for await (const line of createInterface({ input: stderr })) {
    const [, url] = /^DevTools listening on (ws:\S+)/.exec(line) ?? []
    if (url !== undefined) return url
  }
  throw new Error('the browser ended')
}

async function load(socket: WebSocket, url: string, close: () => Promise<void>): Promise<ReportPage> {
  const complaints: string[] = []
  const requests: string[] = []
  const waiting = new Map<number, (result: Message) => void>()
  const loaded = Promise.withResolvers<void>()
  let sessionId: string | undefined
  let ids = 0
  const send = async (method: string, params: object = {}) => {
    const id = ++ids
    const answer = new Promise<Message>(resolve => waiting.set(id, resolve))
    socket.send(JSON.stringify({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) }))
    return (await answer).result ?? {}
  }
  socket.on('message', data => {
    const message = JSON.parse(String(data)) as Message
    if (message.id !== undefined) return waiting.get(message.id)?.(message)
    const text = JSON.stringify(message.params)
    if (message.method === 'Page.loadEventFired') loaded.resolve()
    if (/^(Log\.entryAdded|Runtime\.(consoleAPICalled|exceptionThrown))$/.test(message.method ?? ''))
      complaints.push(text)
    if (message.method === 'Network.requestWillBeSent')
      requests.push((message.params as { request: { url: string } }).request.url)
  })
  const { targetInfos } = (await send('Target.getTargets')) as {
    targetInfos: { type: string; targetId: string }[]
  }
  const { targetId } = targetInfos.find(each => each.type === 'page')!
  sessionId = String((await send('Target.attachToTarget', { targetId, flatten: true })).sessionId)
  for (const domain of ['Page', 'Log', 'Runtime', 'Network']) await send(`${domain}.enable`)
  await send('Page.navigate', { url })
  await loaded.promise
  return {
    complaints,
    requests,
    close,
    async evaluate(expression) {
      const { result } = (await send('Runtime.evaluate', { expression, returnByValue: true })) as {
        result: { value: unknown }
      }
      return result.value
    },
    async setColours(scheme) {
      await send('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] })
    },
  }
}
