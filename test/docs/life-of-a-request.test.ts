import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

const read = (path: string) => readFileSync(path, 'utf8')
/** `edge     server/edge/edge.ts    callers > record > (yours) > deliver`, as the picture has it. */
const ROW = /^ {4}\w+ +([\w./-]+\.ts) +(.*)$/gm

const rows = [...read('docs/life-of-a-request.md').matchAll(ROW)].map(([, file, layers]) => ({
  file: file!,
  layers: layers!.split(' > ').map(name => name.trim()),
}))

test('the picture shows the edge, the client and the router', () => {
  expect(rows.map(({ file }) => file)).toEqual(['server/edge/edge.ts', 'client/exchanges.ts', 'router/router.ts'])
})

test("the edge has the picture's layers, in order", () => {
  const [, composed = ''] = /handler: compose\(\s*\[([\s\S]*?)\n {6}\]/.exec(read('server/edge/edge.ts'))!
  const names = [...composed.matchAll(/^ {8}(\w+)/gm)].map(([, name]) => name!.replace(/^recorded$/, 'record'))
  expect([...names, '(yours)', 'deliver']).toEqual(rows[0]!.layers)
})

test("the client has the picture's layers, in order", () => {
  const text = read('client/exchanges.ts')
  const [, composed = ''] = /compose\(\[(.*)\], inward\)/.exec(text)!
  const names = composed.split(', ').map(name => name.replace(/^recorded$/, 'record'))
  expect(text).toContain('shielded(layers, shieldedTarget(target, ')
  expect(['admit', ...names, '(yours)', 'target']).toEqual(rows[1]!.layers)
})

test("the router has the picture's layers, in order", () => {
  expect(read('router/router.ts')).toMatch(/compose\(\s*\[recorded\],\s*routeHandler\(/)
  expect(rows[2]!.layers).toEqual(['record', 'decide and forward', 'upstream'])
})
