/** Command lines in documents: `sallyport COMMAND --flag ...`, in blocks and between backticks. */
import { globSync, readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { flagsOf } from '../../cli/catalog/flags.ts'
import { COMMANDS } from '../../cli/commands.ts'

const EVERYWHERE = new Set(['help', 'version'])
const files = [
  ...globSync('*.md'),
  ...globSync('docs/*.md'),
  ...globSync('{deploy,examples,load-tests}/**/*.{md,yaml}'),
]

/** Each command line of `text`, a continued one as a single line, without its comment. */
function commandLines(text: string): string[] {
  const joined = text.replaceAll(/ \\\n[# ]*/g, ' ')
  const blocks = [...joined.matchAll(/^(?:#| {4})\s*sallyport (.*)$/gm), ...joined.matchAll(/^sallyport (.*)$/gm)]
  const inline = [...joined.matchAll(/`sallyport ([^`]*)`/g)]
  return [...blocks, ...inline].map(([, line]) => line!.replace(/ {2,}#.*/, ''))
}

/** What is wrong with a command line; undefined if nothing is. */
function mistakeIn(line: string): string | undefined {
  const words = line.split(/\s+/)
  const named = COMMANDS.filter(({ name }) => name.split(' ').every((word, at) => words[at] === word))
  // `sallyport sessions` alone is a group of commands.
  const group = COMMANDS.filter(({ name }) => name.split(' ')[0] === words[0])
  if (group.length === 0) return /^(?:COMMAND|-)/.test(line) ? undefined : `there is no command ${words[0]}`
  const flags = new Set((named.length === 0 ? group : named).flatMap(command => Object.keys(flagsOf(command))))
  const unknown = [...line.matchAll(/(?<=\s|\[)--([a-z][a-z.-]*)/g)].map(([, flag]) => flag!)
  const wrong = unknown.filter(flag => !flags.has(flag) && !EVERYWHERE.has(flag))
  if (wrong.length > 0) return `${words[0]} has no --${wrong.join(', --')}`
  const client =
    /^(?:check )?client (?=.*--server)(?!.*(?:\.\.\.|--(?:config|target|routes|preset)|\s(?:\d+|[\w.-]+:\d+)$))/
  return client.test(line) ? 'client has no target' : undefined
}

describe('command lines in documents', () => {
  test.each(files.map(file => [file]))('%s', file => {
    const lines = commandLines(readFileSync(file, 'utf8'))
    expect(lines.flatMap(line => mistakeIn(line) ?? [])).toEqual([])
  })

  test('there are many, and a wrong one is found', () => {
    expect(files.flatMap(file => commandLines(readFileSync(file, 'utf8'))).length).toBeGreaterThan(40)
    const text =
      '    sallyport server --domain a \\\n      --domian b\n\nor `sallyport sesions list`, `sallyport drain --grace 5s`'
    expect(commandLines(text).map(mistakeIn)).toEqual([
      'server has no --domian',
      'there is no command sesions',
      undefined,
    ])
  })
})

/** Blocks of commands: their first word is a program. */
const PROGRAM =
  /^(?:[A-Z_]+=\S+ )*\(?(?:sallyport|npm|node|git|curl|ssh|scp|docker|kubectl|helm|openssl|printf|mkdir|cp|cd|id|getent|umask|chgrp|chmod|sed|systemctl)\s/

/** Lines of blocks of commands that are no commands, as when somebody has wrapped the lines anew. */
function strayLines(text: string): string[] {
  const blocks = text.match(/(?:^ {4}\S.*\n(?: {5,}.*\n)*)+/gm) ?? []
  const lines = blocks.map(block =>
    block
      .replaceAll(/ \\\n */g, ' ')
      .replaceAll(/^ {4}/gm, '')
      .trimEnd()
      .split('\n'),
  )
  return lines.flatMap(([first = '', ...more]) =>
    PROGRAM.test(first) ? more.filter(line => !PROGRAM.test(line) && !line.startsWith('#')) : [],
  )
}

test.each(files.map(file => [file]))('each line of a block of commands in %s is a command', file => {
  expect(strayLines(readFileSync(file, 'utf8'))).toEqual([])
})

test('a wrapped command is found', () => {
  expect(strayLines('    ssh a # until then kubectl\n    port-forward b\n')).toEqual(['port-forward b'])
})

test('the README is a first visit: short, and with each first step', () => {
  const text = readFileSync('README.md', 'utf8')
  expect(text.trimEnd().split('\n').length).toBeLessThanOrEqual(130)
  const steps = ['npm start', 'sallyport token create', 'sallyport server', 'sallyport client', 'sallyport load-test']
  for (const step of [...steps, 'sallyport route test', "from 'sallyport/client'"]) expect(text).toContain(step)
})
