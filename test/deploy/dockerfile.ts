/**
 * Runs the steps of a Dockerfile in plain folders where there is no container engine: each stage is a folder, COPY
 * copies, RUN runs in the stage's WORKDIR. It cannot show the base image.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, mkdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

export interface BuiltImage {
  /** Folder that stands in for `/` of the last stage. */
  readonly root: string
  readonly user: number
  readonly entrypoint: readonly string[]
  readonly env: Readonly<Record<string, string>>
  readonly labels: Readonly<Record<string, string>>
  /** The command whose exit code says whether the container is alive. */
  readonly healthcheck: readonly string[]
}

export function buildImage(context: string, scratch: string, path: string): BuiltImage {
  const lines = readFileSync(join(context, 'Dockerfile'), 'utf8').split('\n')
  const sent = new Set(
    readFileSync(join(context, '.dockerignore'), 'utf8')
      .split('\n')
      .filter(line => line.startsWith('!'))
      .map(line => line.slice(1).replace(/\*\*$/, '')),
  )
  const stages = new Map<string, string>()
  let root = ''
  let workdir = '/'
  let user = 0
  let entrypoint: string[] = []
  let env: Record<string, string> = {}
  const labels: Record<string, string> = {}
  let healthcheck: string[] = []
  for (const line of lines) {
    const [instruction, ...words] = line.trim().split(/\s+/)
    const rest = words.join(' ')
    switch (instruction) {
      case '':
      case '#':
      case 'ARG': // the base image's
      case 'CMD':
        break
      case 'LABEL': {
        const [, name, value] = /^(\S+)="(.*)"$/.exec(rest)!
        labels[name!] = value!
        break
      }
      case 'HEALTHCHECK':
        healthcheck = JSON.parse(rest.slice(rest.indexOf('[')))
        break
      case 'FROM': {
        root = join(scratch, `stage-${stages.size}`)
        mkdirSync(root, { recursive: true })
        stages.set(words[2] ?? 'last', root)
        workdir = '/'
        env = {}
        break
      }
      case 'ENV':
        env = { ...env, ...Object.fromEntries(words.map(word => word.split('=') as [string, string])) }
        break
      case 'WORKDIR':
        workdir = rest
        mkdirSync(join(root, workdir), { recursive: true })
        break
      case 'COPY': {
        const stage = words[0]?.startsWith('--from=') ? words.shift()!.slice('--from='.length) : undefined
        const from = stage ? stages.get(stage) : context
        const target = words.pop()!
        for (const source of words) {
          if (!stage && ![...sent].some(one => one === source || (one.endsWith('/') && source.startsWith(one))))
            throw new Error(`.dockerignore keeps ${source} from the build`)
          const destination = join(root, workdir, target)
          const isFolder = source.endsWith('/')
          const into = isFolder || !target.endsWith('/') ? destination : join(destination, basename(source))
          mkdirSync(dirname(into), { recursive: true })
          cpSync(join(from!, source), into, { recursive: true })
        }
        break
      }
      case 'RUN':
        execFileSync('/bin/sh', ['-ec', rest], {
          cwd: join(root, workdir),
          env: { ...process.env, ...env, PATH: path },
          stdio: ['ignore', 2, 2], // a compiler says on stdout why it failed
        })
        break
      case 'USER':
        user = Number(rest.split(':')[0])
        break
      case 'ENTRYPOINT':
        entrypoint = JSON.parse(rest)
        break
      default:
        if (!instruction?.startsWith('#')) throw new Error(`unknown instruction: ${line}`)
    }
  }
  return { root, user, entrypoint, env, labels, healthcheck }
}
