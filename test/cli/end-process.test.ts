import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sallyport-end-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

describe.runIf(process.platform === 'linux')('a process that waits forever for a file ends with its own code', () => {
  test.each<[string, (program: string) => void]>([
    ['is there', () => {}],
    ['was removed', program => rmSync(program)],
    [
      'was replaced by another one',
      program => {
        rmSync(program)
        writeFileSync(program, '#!/bin/sh\nexit 7\n', { mode: 0o755 })
      },
    ],
  ])('when its program %s', async (_, change) => {
    const [pipe, program] = [join(folder, 'pipe'), join(folder, 'node')]
    execFileSync('mkfifo', [pipe])
    copyFileSync(process.execPath, program)
    const source = `
      import { open } from 'node:fs/promises'
      import { endProcess } from ${JSON.stringify(import.meta.resolve('../../cli/end-process.ts'))}
      open(${JSON.stringify(pipe)})
      process.stdin.once('data', () => endProcess(5))
      process.stdout.write('ready')`
    const child = spawn(program, ['--input-type=module', '--eval', source], { stdio: ['pipe', 'pipe', 'inherit'] })
    await once(child.stdout, 'data')
    change(program)
    child.stdin.write('end')
    expect(await once(child, 'exit')).toEqual([5, null])
  })
})
