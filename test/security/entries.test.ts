/** P1: nothing that enters our code from Node bypasses `protocol/base/guard.ts`. */
import { globSync, readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { unguardedEntries } from './entries.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const FOLDERS = ['admin', 'cli', 'client', 'protocol', 'router', 'server', 'tracing']

/**
 * The guard itself, short-lived programs that a defect may end, and the code that passes events on to an embedder's
 * listeners.
 */
const EXEMPT =
  /^(?:protocol\/(?:base\/guard|base\/events|http\/http1\/mounts)\.ts|cli\/demo\/.*|cli\/main\.ts|cli\/commands\/load-test\.ts)$/
const files = globSync(`{${FOLDERS.join(',')}}/**/*.ts`, { cwd: ROOT })
  .filter(file => !EXEMPT.test(file))
  .sort()

describe('P1 entries', () => {
  test('are all guarded', () => {
    const found = files.flatMap(file => {
      return unguardedEntries(readFileSync(resolve(ROOT, file), 'utf8')).map(entry => `${file}:${entry}`)
    })
    expect(found).toEqual([])
  })

  test.each([
    ["socket.on('data', chunk => read(chunk))", 1],
    ["socket.on('data', guard(chunk => read(chunk)))", 0],
    ["socket.on('data', this.#guard(chunk => read(chunk)))", 0],
    ["socket.once('close', () => {})", 0],
    ["socket.once('close', () => { const last = next; next = undefined })", 0],
    ["socket.once('close', () => { next(last) })", 1],
    [
      "class A { static #late = stepOf(a => a.late()); #on = () => { setImmediate(A.#late, this) }; b() { socket.on('close', this.#on) } }",
      0,
    ],
    ['socket[slot] = (length) => read(length)', 1],
    ['socket[slot] = (length) => { try { read(length) } catch (error) { end(error) } }', 0],
    ['socket.read = size => more(size)', 1],
    ['this.over = () => later()', 0],
    ['class A { #written = () => this.#more(); b() { socket.write(bytes, this.#written) } }', 1],
    ['class A { #written = () => { try { this.#more() } catch {} }; b() { socket.write(bytes, this.#written) } }', 0],
    ['createServer(options, answer); function answer() { say() }', 1],
    ['client.subscribe(channel, text => hear(text))', 1],
    ["socket.once('close', resolve)", 0],
    ["socket.once('close', gone); function gone() { leave() }", 1],
    ["socket.once('close', gone); function gone() { try { leave() } catch { tell() } }", 0],
    ["socket.once('close', gone); function gone() { first(); try { leave() } catch { tell() } }", 1],
    ["socket.once('close', gone); function gone() { try { leave() } finally { tell() } }", 1],
    ["signal.addEventListener('abort', () => leave())", 1],
    ["class A { #gone = guard(() => leave()); b() { socket.on('close', this.#gone) } }", 0],
    ["class A { #gone() { leave() } b() { socket.on('close', this.#gone) } }", 1],
    ['setTimeout(() => late(), 5)', 1],
    ['setTimeout(late, 5, this); const late = stepOf(owner => owner.late())', 0],
    ['setTimeout(heardFirst(late), 5, this); const late = stepOf(owner => owner.late())', 0],
    ['setTimeout(heardFirst(() => late()), 5)', 1],
    ['setInterval(unknown, 5)', 1],
    ['setImmediate(() => late())', 1],
    ['process.nextTick(() => late())', 1],
    ['queueMicrotask(() => late())', 1],
    ['void work()', 1],
    ['void work().catch(guard(error => tell(error)))', 0],
    ['detached(logger, "work", work())', 0],
    ['setInterval(starting(logger, "work", () => work()), 5)', 0],
    ['work().then(() => next())', 1],
    ['work().then(guard(() => next()), guard(() => fail()))', 0],
    ['work().then(guard(() => next()))', 1],
    ['work().catch(() => {})', 0],
    ['const next = work().then(() => more())', 0],
    ['createServer(options, socket => take(socket))', 1],
    ['server.listen(options, () => listening())', 1],
  ])('%s has %i', (source, count) => {
    expect(unguardedEntries(source)).toHaveLength(count)
  })
})
