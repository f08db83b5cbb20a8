/** A separate folder with a `sallyport` on the PATH, in which the commands of a page are typed as written. */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect } from 'vitest'
import { until } from '../support/until.ts'

export interface Shell {
  readonly folder: string
  /** Runs the commands, one after the other; rejects with the output if one fails. Resolves to stdout. */
  run(commands: string): Promise<string>
  /** Starts a command that keeps running, and resolves once it has printed `word`. */
  keep(command: string, word: string): Promise<Kept>
}

export interface Kept {
  /** Its output so far. */
  said(): string
}

/** Lines that are indented by four spaces: a page's commands. Fenced blocks are for other programs. */
export function blocks(text: string): string[] {
  const plain = text.replaceAll(/^```[\s\S]*?^```$/gm, '')
  return [...plain.matchAll(/(?:^ {4}.*\n)+/gm)].map(([block]) => block.replaceAll(/^ {4}/gm, '').trimEnd())
}

/** For the top of a file of tests. What was started ends with it. */
export function useShell(): Shell {
  const folder = mkdtempSync(join(tmpdir(), 'sallyport-page-'))
  const running: ChildProcess[] = []
  const clean = Object.entries(process.env).filter(([name]) => !/^SALLYPORT_|_proxy$/i.test(name))
  const environment = {
    ...Object.fromEntries(clean),
    PATH: `${join(folder, 'bin')}${delimiter}${process.env.PATH}`,
    SALLYPORT_ADMIN_LISTEN: '127.0.0.1:0',
    SALLYPORT_LOG_FORMAT: 'json',
    // Other servers on this machine are not found here.
    ...{ RUNTIME_DIRECTORY: join(folder, 'run'), XDG_RUNTIME_DIR: '', TMPDIR: folder },
  }
  const options = { cwd: folder, env: environment }
  beforeAll(() => {
    for (const name of ['bin', 'run']) mkdirSync(join(folder, name), { mode: 0o700 })
    const command = join(folder, 'bin/sallyport')
    writeFileSync(command, `#!/bin/sh\nexec '${process.execPath}' '${resolve('bin/sallyport.js')}' "$@"\n`)
    chmodSync(command, 0o755)
  })
  afterAll(async () => {
    for (const child of running) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill()
      await once(child, 'exit')
    }
    rmSync(folder, { recursive: true, force: true })
  })
  return {
    folder,
    run: async commands => (await promisify(execFile)('/bin/sh', ['-ec', commands], options)).stdout,
    keep: async (command, word) => {
      const child = spawn('/bin/sh', ['-c', `exec ${command}`], { ...options, stdio: ['ignore', 'ignore', 'pipe'] })
      running.push(child)
      let said = ''
      child.stderr.setEncoding('utf8').on('data', text => {
        said += text
      })
      await until(() => said.includes(word) || child.exitCode !== null, `${command}: ${word}`)
      expect(child.exitCode, said).toBeNull()
      return { said: () => said }
    },
  }
}
