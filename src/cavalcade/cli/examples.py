"""What help shows of each verb: the options people need first, and three commands that work."""

COMMON = {
    "train": (
        "recipe", "resume", "run", "episodes", "steps", "red", "seed", "policies", "num_envs", "learning_rate",
        "hidden", "backend", "cyborg", "task", "device", "watch", "quiet",
    ),
    "search": (
        "resume", "run", "red", "searcher", "total_episodes", "max_episodes", "n_workflows", "enforce", "confirm",
        "seed", "seeds", "device", "watch", "quiet",
    ),
    "search cyborg": (
        "cyborg", "cyborg_python", "resume", "run", "red", "searcher", "total_episodes", "max_episodes", "n_workflows",
        "workers", "seed", "quiet",
    ),
    "tune": ("seconds", "recipe", "episodes", "steps", "red", "hidden", "seed", "cyborg", "env_options"),
    "profile": (
        "updates", "threads", "recipe", "hardware", "cprofile", "red", "num_envs", "hidden", "backend", "cyborg",
        "env_options",
    ),
    "evaluate": (
        "episodes", "arenas", "seed", "sampled", "member", "order", "revisions", "simulator", "cyborg", "json",
    ),
    "play": ("run", "blue", "red", "seed", "steps", "horizon", "delay", "task", "html"),
}  # fmt: skip

EXAMPLES = {
    "train": (
        "cavalcade train cage2 --recipe cage2-meander",
        "cavalcade train gym:CartPole-v1 --steps 200000 --run runs/pole",
        "cavalcade train --resume runs/pole",
    ),
    "train cage2": (
        "cavalcade train cage2 --recipe cage2-meander --run runs/meander",
        "cavalcade train cage2 --red mixed --policies 8 --hidden 128,128",
        "cavalcade train --resume runs/meander",
    ),
    "train cyborg": (
        "cavalcade train cyborg --cyborg CLONE --episodes 1000 --run runs/original",
        "cavalcade train cyborg --cyborg CLONE --cyborg-python CLONE/.venv/bin/python --workers 4",
        "cavalcade train --resume runs/original",
    ),
    "train gym:": (
        "cavalcade train gym:CartPole-v1 --steps 200000 --run runs/pole",
        "cavalcade train gym:FrozenLake-v1 --env-options is_slippery=false",
        "cavalcade train gym:my_package:MyEnv-v0 --num-envs 32 --backend async",
    ),
    "train mettagrid": (
        "cavalcade train mettagrid --steps 3000000 --run runs/grid",
        "cavalcade train mettagrid --recipe mettagrid-guide --hardware laptop",
        "cavalcade train --resume runs/grid",
    ),
    "train env:": (
        "cavalcade train env:my_module:MyEnv --steps 1000000",
        "cavalcade train env:my_module:MyEnv --env-options size=8 --policies 4",
        "cavalcade train --resume RUN",
    ),
    "search": (
        "cavalcade search cage2",
        "cavalcade search cage2 --red meander --total-episodes 400000 --run runs/orders",
        "cavalcade search --resume runs/orders",
    ),
    "search cyborg": (
        "cavalcade search cyborg --cyborg CLONE --run runs/original-orders",
        "cavalcade search cyborg --cyborg CLONE --workers 4 --n-workflows 5",
        "cavalcade search --resume runs/original-orders",
    ),
    "search merge": ("cavalcade search merge runs/shard-1 runs/shard-2 --run runs/orders",),
    "search audit": ("cavalcade search audit runs/orders",),
    "evaluate": (
        "cavalcade evaluate runs/meander",
        "cavalcade evaluate runs/meander --episodes 10000 --json scores.json",
        "cavalcade evaluate react-restore --revisions head",
    ),
    "export": (
        "cavalcade export runs/meander --onnx policy.onnx",
        "cavalcade export runs/meander --onnx policy.onnx --member 2",
        "cavalcade export runs/orders --onnx policy.onnx --order critical_first",
    ),
    "play": (
        "cavalcade play runs/meander",
        "cavalcade play runs/meander --seed 1 --html game.html",
        "cavalcade play --blue human",
        "cavalcade play mettagrid --run runs/grid",
    ),
    "payoff": (
        "cavalcade payoff runs/a runs/b react",
        "cavalcade payoff runs/a react --reds bline,meander,my_reds:mix --episodes 10000",
        "cavalcade payoff runs/a --reds my_reds:mix --json table.json",
    ),
    "profile": (
        "cavalcade profile cage2",
        "cavalcade profile gym:CartPole-v1 --updates 20",
        "cavalcade profile cage2 --recipe cage2-meander --cprofile profile.out",
    ),
    "record": (
        "cavalcade record --cyborg CLONE --episodes 5",
        "cavalcade record --cyborg CLONE --red meander --blue decoy --out traces",
        "cavalcade record runs/grid --out recordings",
    ),
    "report": (
        "cavalcade report runs/meander",
        "cavalcade report runs/a runs/b --out curves.html",
        "cavalcade report runs/orders --picture orders.svg",
    ),
    "tune": (
        "cavalcade tune gym:CartPole-v1",
        "cavalcade tune cage2 --seconds 2",
        "cavalcade train gym:CartPole-v1 --hardware tuned",
    ),
    "verify": (
        "cavalcade verify traces",
        "cavalcade verify traces/head.npz",
        "cavalcade verify traces --device cuda",
    ),
    "verify mettagrid": (
        "cavalcade verify mettagrid",
        "cavalcade verify mettagrid --task forage --env-options agents=60 --steps 10000",
        "cavalcade verify mettagrid --task my_module:my_game",
    ),
    "watch": (
        "cavalcade watch",
        "cavalcade watch runs/meander --open",
        "cavalcade watch experiments --host 0.0.0.0 --port 9000",
    ),
    "completion": (
        'eval "$(cavalcade completion bash)"',
        'eval "$(cavalcade completion zsh)"',
        "cavalcade completion fish > ~/.config/fish/completions/cavalcade.fish",
    ),
}  # fmt: skip
