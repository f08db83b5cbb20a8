/** The flags of commands: those that several commands share, and the settings of a component as flags. */
import type { CommandFlag, Flags } from '../args.ts'
import type { Command } from '../command.ts'
import { COMPONENTS } from '../config/components.ts'
import type { Setting, Settings } from '../config/setting.ts'

export const flag = (placeholder: string, about: string): CommandFlag => ({ placeholder, about })

/** A flag that may be given more than once. */
export const listFlag = (placeholder: string, about: string): CommandFlag => ({ placeholder, about, list: true })

export const force = { force: flag('', 'Overwrites existing files.') }
export const json = { json: flag('', 'Prints JSON.') }

/** How to reach an admin listener. */
export const adminAddress = {
  admin: flag('URL', 'Admin listener to ask. Default: found automatically on this machine.'),
  'admin.token.file': flag('FILE', 'File with its bearer token. Default: found automatically on this machine.'),
}
export const adminFlags = { ...adminAddress, ...json }

const CONFIG_ABOUT = 'YAML file with settings. Flags and environment variables override it.'

/** All flags of a command: its own and the settings of its component. */
export function flagsOf(command: Command): Flags {
  const settings: Settings = command.component ? COMPONENTS[command.component] : {}
  const file =
    command.component === 'client'
      ? `${CONFIG_ABOUT} Default: ~/.config/sallyport/client.yaml, if it exists.`
      : CONFIG_ABOUT
  const config = command.component ? { config: flag('FILE', file) } : {}
  return { ...config, ...command.flags, ...settingFlags(settings) }
}

function settingFlags(settings: Settings): Flags {
  const entries = Object.entries(settings).map(([name, setting]) => {
    const { placeholder, list } = setting.kind
    return [name, { about: describe(setting), placeholder, list }]
  })
  return Object.fromEntries(entries)
}

function describe({ kind, about, default: fallback }: Setting): string {
  const hasDefault = fallback !== undefined && kind.placeholder !== ''
  return [about, kind.list ? 'May repeat.' : '', hasDefault ? `Default ${fallback}.` : ''].filter(Boolean).join(' ')
}

/** The settings of the preset, for a command that also knows it. */
export function presetFlags(): Flags {
  const entries = Object.entries(COMPONENTS.router).filter(([name]) => name.startsWith('preset.'))
  return settingFlags(Object.fromEntries(entries))
}
